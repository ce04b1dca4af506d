# Provisions nothing: the provider is mocked. Each of these must be refused before anything is created.

mock_provider "aws" {
  mock_data "aws_ec2_instance_type" {
    defaults = { gpus = [], supported_architectures = ["x86_64"] }
  }
  mock_data "aws_ec2_instance_type_offerings" {
    defaults = { locations = ["us-east-1c", "us-east-1b"] }
  }
  mock_data "aws_availability_zones" {
    defaults = { names = ["us-east-1a", "us-east-1b", "us-east-1c"] }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
}

variables {
  allowed_cidrs = ["203.0.113.7/32"]
}

run "a_platform_that_there_is_not" {
  command = plan

  variables {
    platform = "gke"
  }

  expect_failures = [var.platform]
}

run "one_node_of_several" {
  command = plan

  variables {
    multinode_torchrun = true
    nodes              = 1
  }

  expect_failures = [var.nodes]
}

run "half_a_node" {
  command = plan

  variables {
    multinode_torchrun = true
    nodes              = 2.5
  }

  expect_failures = [var.nodes]
}

run "too_many_nodes" {
  command = plan

  variables {
    multinode_torchrun = true
    nodes              = 65
  }

  expect_failures = [var.nodes]
}

run "several_nodes_without_multinode_torchrun" {
  command = plan

  variables {
    nodes = 4
  }

  expect_failures = [var.nodes]
}

run "an_accelerator_that_there_is_not" {
  command = plan

  variables {
    accelerator = "tpu"
  }

  expect_failures = [var.accelerator]
}

run "no_instance_type" {
  command = plan

  variables {
    instance_type = "xlarge"
  }

  expect_failures = [var.instance_type]
}

run "no_range" {
  command = plan

  variables {
    allowed_cidrs = []
  }

  expect_failures = [var.allowed_cidrs]
}

run "the_whole_world" {
  command = plan

  variables {
    allowed_cidrs = ["0.0.0.0/0"]
  }

  expect_failures = [var.allowed_cidrs]
}

run "the_whole_world_in_halves" {
  command = plan

  variables {
    allowed_cidrs = ["0.0.0.0/1", "128.0.0.0/1"]
  }

  expect_failures = [var.allowed_cidrs]
}

run "an_address_without_a_length" {
  command = plan

  variables {
    allowed_cidrs = ["203.0.113.7"]
  }

  expect_failures = [var.allowed_cidrs]
}

run "a_range_with_host_bits" {
  command = plan

  variables {
    allowed_cidrs = ["203.0.113.7/24"]
  }

  expect_failures = [var.allowed_cidrs]
}

run "a_range_of_ipv6" {
  command = plan

  variables {
    allowed_cidrs = ["2001:db8::/32"]
  }

  expect_failures = [var.allowed_cidrs]
}

run "a_private_key" {
  command = plan

  variables {
    ssh_public_key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU=\n-----END OPENSSH PRIVATE KEY-----\n"
  }

  expect_failures = [var.ssh_public_key]
}

run "a_key_that_ec2_does_not_take" {
  command = plan

  variables {
    ssh_public_key = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAI"
  }

  expect_failures = [var.ssh_public_key]
}

run "machines_without_a_key" {
  command = plan

  variables {
    platform = "ec2"
  }

  expect_failures = [var.ssh_public_key]
}

run "a_zone_for_a_region" {
  command = plan

  variables {
    region = "us-east-1a"
  }

  expect_failures = [var.region]
}

run "a_name_that_ends_in_a_hyphen" {
  command = plan

  variables {
    name = "team-"
  }

  expect_failures = [var.name]
}

run "a_name_that_is_too_long" {
  command = plan

  variables {
    name = "a-name-that-has-thirty-one-chars"
  }

  expect_failures = [var.name]
}

run "a_name_that_looks_like_an_id" {
  command = plan

  variables {
    name = "sg"
  }

  expect_failures = [var.name]
}

run "a_disk_that_is_too_small" {
  command = plan

  variables {
    disk_gib = 8
  }

  expect_failures = [var.disk_gib]
}

run "a_version_that_ddpjob_does_not_run_on" {
  command = plan

  variables {
    kubernetes_version = "1.30"
  }

  expect_failures = [var.kubernetes_version]
}

run "a_patch_level" {
  command = plan

  variables {
    kubernetes_version = "1.34.4"
  }

  expect_failures = [var.kubernetes_version]
}

run "a_cluster_with_amd_and_without_an_image" {
  command = plan

  variables {
    accelerator = "amd"
  }

  override_data {
    target = data.aws_ec2_instance_type.node
    values = {
      gpus                    = [{ count = 1, manufacturer = "AMD", memory_size = 16384, name = "Radeon Pro V520" }]
      supported_architectures = ["x86_64"]
    }
  }

  expect_failures = [var.ami_id]
}

run "an_image_by_name" {
  command = plan

  variables {
    ami_id = "ubuntu"
  }

  expect_failures = [var.ami_id]
}

run "gpus_for_cpu" {
  command = plan

  variables {
    instance_type = "g4dn.xlarge"
  }

  override_data {
    target = data.aws_ec2_instance_type.node
    values = {
      gpus                    = [{ count = 1, manufacturer = "NVIDIA", memory_size = 16384, name = "T4" }]
      supported_architectures = ["x86_64"]
    }
  }

  expect_failures = [data.aws_ec2_instance_type.node]
}

run "no_gpus_for_nvidia" {
  command = plan

  variables {
    accelerator   = "nvidia"
    instance_type = "t3.xlarge"
  }

  expect_failures = [data.aws_ec2_instance_type.node]
}

run "gpus_of_another_maker" {
  command = plan

  variables {
    accelerator   = "nvidia"
    instance_type = "g4ad.xlarge"
  }

  override_data {
    target = data.aws_ec2_instance_type.node
    values = {
      gpus                    = [{ count = 1, manufacturer = "AMD", memory_size = 16384, name = "Radeon Pro V520" }]
      supported_architectures = ["x86_64"]
    }
  }

  expect_failures = [data.aws_ec2_instance_type.node]
}

run "a_machine_for_other_programs" {
  command = plan

  variables {
    instance_type = "m7g.large"
  }

  override_data {
    target = data.aws_ec2_instance_type.node
    values = { gpus = [], supported_architectures = ["arm64"] }
  }

  expect_failures = [data.aws_ec2_instance_type.node]
}

run "a_region_without_the_instance_type" {
  command = plan

  variables {
    region = "eu-north-1"
  }

  override_data {
    target = data.aws_ec2_instance_type_offerings.zones
    values = { locations = [] }
  }

  expect_failures = [data.aws_ec2_instance_type_offerings.zones]
}
