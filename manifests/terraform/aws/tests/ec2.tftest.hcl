# Provisions nothing: the provider is mocked. What is asserted is what a plan would do.

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
  mock_data "aws_ssm_parameter" {
    defaults = { insecure_value = "ami-0123456789abcdef0" }
  }

  # Made-up values are the same for all resources, which would make any two of them equal.
  mock_resource "aws_vpc" {
    defaults = { id = "vpc" }
  }
  mock_resource "aws_internet_gateway" {
    defaults = { id = "internet-gateway" }
  }
  mock_resource "aws_subnet" {
    defaults = { id = "subnet-nodes" }
  }
  mock_resource "aws_security_group" {
    defaults = { id = "security-group" }
  }
  mock_resource "aws_instance" {
    defaults = { private_ip = "10.42.0.4", public_ip = "203.0.113.70" }
  }
}

variables {
  platform       = "ec2"
  allowed_cidrs  = ["203.0.113.7/32", "198.51.100.0/24"]
  ssh_public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUDjCaUmZhZJ+Qc9XSSUHlRCWtnFnbCQPrkJ+1k7aBv someone@example"
}

run "there_is_one_machine_without_multinode_torchrun" {
  command = plan

  assert {
    condition     = length(aws_instance.node) == 1
    error_message = "without multinode_torchrun there must be one machine"
  }
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.between_nodes) == 0
    error_message = "one machine has no others to accept connections from"
  }
  assert {
    condition     = aws_instance.node[0].instance_type == "t3.xlarge" && strcontains(aws_instance.node[0].user_data, "docker.io")
    error_message = "cpu must be t3.xlarge, with Docker"
  }
}

run "multinode_torchrun_means_two_machines" {
  command = plan

  variables {
    multinode_torchrun = true
  }

  assert {
    condition     = length(aws_instance.node) == 2
    error_message = "multinode_torchrun must mean two machines unless nodes is set"
  }
}

run "ssh_is_open_to_the_allowed_ranges_alone" {
  command = plan

  variables {
    multinode_torchrun = true
  }

  assert {
    condition     = toset([for rule in aws_vpc_security_group_ingress_rule.ssh : rule.cidr_ipv4]) == toset(["203.0.113.7/32", "198.51.100.0/24"])
    error_message = "ssh must be open to allowed_cidrs and nothing else"
  }
  assert {
    condition = alltrue([
      for rule in aws_vpc_security_group_ingress_rule.ssh : rule.ip_protocol == "tcp" && rule.from_port == 22 && rule.to_port == 22
    ])
    error_message = "allowed_cidrs must reach port 22 and no other"
  }
}

run "there_is_no_cluster" {
  command = plan

  assert {
    condition     = length(aws_eks_cluster.this) + length(aws_eks_node_group.this) + length(aws_iam_role.cluster) + length(aws_iam_role.node) == 0
    error_message = "ec2 must have nothing of eks"
  }
  assert {
    condition     = length(aws_subnet.second) == 0 && output.kubeconfig_command == null
    error_message = "ec2 needs one subnet, and has no kubeconfig"
  }
}

run "disks_are_encrypted_and_go_with_their_machine" {
  command = plan

  variables {
    disk_gib = 200
  }

  assert {
    condition = alltrue([
      for disk in aws_instance.node[0].root_block_device : disk.encrypted && disk.delete_on_termination && disk.volume_size == 200
    ]) && length(aws_instance.node[0].root_block_device) == 1
    error_message = "the disk must have the size that was asked for, be encrypted, and be deleted with its machine"
  }
  assert {
    condition     = aws_instance.node[0].metadata_options[0].http_tokens == "required"
    error_message = "metadata must need a token"
  }
}

run "nvidia_has_the_image_with_the_driver" {
  command = plan

  variables {
    accelerator = "nvidia"
  }

  override_data {
    target = data.aws_ec2_instance_type.node
    values = {
      gpus                    = [{ count = 1, manufacturer = "NVIDIA", memory_size = 16384, name = "T4" }]
      supported_architectures = ["x86_64"]
    }
  }

  assert {
    condition     = aws_instance.node[0].instance_type == "g4dn.xlarge"
    error_message = "nvidia must be g4dn.xlarge unless instance_type is set"
  }
  assert {
    condition     = strcontains(data.aws_ssm_parameter.image[0].name, "nvidia-driver") && !strcontains(aws_instance.node[0].user_data, "docker")
    error_message = "nvidia must have the image with driver and Docker, and no second Docker"
  }
}

run "amd_gets_the_driver_at_the_first_boot" {
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

  assert {
    condition     = aws_instance.node[0].instance_type == "g4ad.xlarge" && strcontains(aws_instance.node[0].user_data, "linux-modules-extra-aws")
    error_message = "amd must be g4ad.xlarge, with the driver amdgpu"
  }
}

run "an_image_of_ones_own_is_taken" {
  command = plan

  variables {
    ami_id = "ami-0fedcba9876543210"
  }

  assert {
    condition     = aws_instance.node[0].ami == "ami-0fedcba9876543210" && length(data.aws_ssm_parameter.image) == 0
    error_message = "the image must be the one of ami_id"
  }
}

# From here on there is a state.

run "machines_are_as_many_as_asked_for_and_know_the_first" {
  command = apply

  variables {
    multinode_torchrun = true
    nodes              = 3
  }

  assert {
    condition     = length(aws_instance.node) == 3 && output.nodes[*].rank == [0, 1, 2]
    error_message = "there must be three machines, by node rank"
  }
  assert {
    condition = alltrue([
      for rank, command in output.torchrun_commands : strcontains(command, " --nnodes=3 --node-rank=${rank} ")
      && endswith(command, " --rdzv-endpoint=${aws_instance.node[0].private_ip}:29603")
    ]) && length(output.torchrun_commands) == 3
    error_message = "each machine must have its node rank, and the first one's address between nodes as rendezvous"
  }
  assert {
    condition     = output.ssh_commands[2] == "ssh ubuntu@${aws_instance.node[2].public_ip}"
    error_message = "ssh must go to the public address"
  }
  assert {
    condition     = alltrue([for node in aws_instance.node : node.subnet_id == aws_subnet.nodes.id])
    error_message = "all machines must be in one subnet"
  }
  assert {
    condition     = alltrue([for node in aws_instance.node : node.vpc_security_group_ids == toset([aws_security_group.nodes[0].id])])
    error_message = "all machines must be behind the one security group"
  }
}

run "machines_reach_each_other_where_a_training_needs_it" {
  command = apply

  variables {
    multinode_torchrun = true
  }

  assert {
    condition = alltrue([
      for rule in aws_vpc_security_group_ingress_rule.between_nodes : rule.referenced_security_group_id == aws_security_group.nodes[0].id
      && rule.cidr_ipv4 == null && rule.cidr_ipv6 == null && rule.ip_protocol == "tcp"
    ])
    error_message = "what is open between nodes must be open to nodes alone"
  }
  assert {
    condition = alltrue([
      for port in [22, 29603, 32768, 60999] : anytrue([
        for rule in aws_vpc_security_group_ingress_rule.between_nodes : rule.from_port <= port && port <= rule.to_port
      ])
    ])
    error_message = "ssh for mpirun, the rendezvous and the ports that gloo and NCCL are given must be open between nodes"
  }
  assert {
    condition = alltrue([
      for rule in aws_vpc_security_group_ingress_rule.between_nodes : rule.to_port == 22 || rule.from_port >= 1024
    ])
    error_message = "services of the machines themselves must stay closed"
  }
}

run "a_newer_image_does_not_replace_machines" {
  command = plan

  variables {
    multinode_torchrun = true
    ami_id             = "ami-0fedcba9876543210"
  }

  assert {
    condition     = alltrue([for node in aws_instance.node : node.ami == "ami-0123456789abcdef0"])
    error_message = "machines on which a training may run must stay"
  }
}
