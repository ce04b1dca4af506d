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

override_resource {
  target = aws_subnet.second
  values = { id = "subnet-second" }
}

variables {
  allowed_cidrs = ["203.0.113.7/32", "198.51.100.0/24"]
}

run "a_cluster_has_one_node_without_multinode_torchrun" {
  command = plan

  assert {
    condition = alltrue([
      for count in ["min_size", "desired_size", "max_size"] : aws_eks_node_group.this[0].scaling_config[0][count] == 1
    ])
    error_message = "without multinode_torchrun there must be one node"
  }
  assert {
    condition     = output.kubeconfig_command == "aws eks update-kubeconfig --region us-east-1 --name ddpjob"
    error_message = "the command for the kubeconfig must name region and cluster"
  }
}

run "a_cluster_has_as_many_nodes_as_asked_for" {
  command = plan

  variables {
    multinode_torchrun = true
    nodes              = 4
  }

  assert {
    condition = alltrue([
      for count in ["min_size", "desired_size", "max_size"] : aws_eks_node_group.this[0].scaling_config[0][count] == 4
    ])
    error_message = "there must be four nodes"
  }
}

run "the_api_of_a_cluster_is_open_to_the_allowed_ranges_alone" {
  command = plan

  assert {
    condition     = toset(aws_eks_cluster.this[0].vpc_config[0].public_access_cidrs) == toset(["203.0.113.7/32", "198.51.100.0/24"])
    error_message = "the API must be open to allowed_cidrs and nothing else"
  }
  assert {
    condition     = aws_eks_cluster.this[0].vpc_config[0].endpoint_private_access
    error_message = "nodes must reach the API within the network"
  }
}

run "nobody_can_log_in_to_the_nodes_of_a_cluster" {
  command = plan

  assert {
    condition     = length(aws_eks_node_group.this[0].remote_access) == 0 && aws_launch_template.node[0].key_name == null
    error_message = "the nodes of a cluster must have no ssh key"
  }
  assert {
    condition     = length(aws_key_pair.this) + length(aws_instance.node) + length(aws_vpc_security_group_ingress_rule.ssh) == 0
    error_message = "machines, their key and their rules are for ec2 alone"
  }
}

run "all_nodes_are_in_one_zone_that_has_the_instance_type" {
  command = plan

  assert {
    condition     = aws_subnet.nodes.availability_zone == "us-east-1b" && aws_subnet.second[0].availability_zone != "us-east-1b"
    error_message = "nodes must be in the first zone that offers the type, and the second subnet in another zone"
  }
  assert {
    condition     = aws_eks_node_group.this[0].instance_types == tolist(["t3.xlarge"])
    error_message = "cpu must be t3.xlarge unless instance_type is set"
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
    condition     = aws_eks_node_group.this[0].ami_type == "AL2023_x86_64_NVIDIA"
    error_message = "nvidia must have EKS's image with NVIDIA's driver"
  }
  assert {
    condition     = aws_eks_node_group.this[0].instance_types == tolist(["g4dn.xlarge"])
    error_message = "nvidia must be g4dn.xlarge unless instance_type is set"
  }
}

run "network_policies_are_enforced" {
  command = plan

  assert {
    condition = (
      aws_eks_addon.network[0].addon_name == "vpc-cni"
      && jsondecode(aws_eks_addon.network[0].configuration_values).enableNetworkPolicy == "true"
    )
    error_message = "the network plugin must enforce NetworkPolicies"
  }
}

run "pods_do_not_get_the_rights_of_their_node" {
  command = plan

  assert {
    condition = (
      aws_launch_template.node[0].metadata_options[0].http_tokens == "required"
      && aws_launch_template.node[0].metadata_options[0].http_put_response_hop_limit == 1
    )
    error_message = "the node's credentials must be out of reach of its pods"
  }
  assert {
    condition     = aws_launch_template.node[0].user_data == null
    error_message = "EKS's own images get their configuration from EKS"
  }
}

# From here on there is a state.

run "nodes_start_after_what_they_need_to_join" {
  command = apply

  assert {
    condition     = aws_eks_node_group.this[0].subnet_ids == toset([aws_subnet.nodes.id])
    error_message = "nodes must be in one subnet"
  }
  assert {
    condition     = toset(aws_eks_cluster.this[0].vpc_config[0].subnet_ids) == toset(["subnet-nodes", "subnet-second"])
    error_message = "the control plane must be in both subnets"
  }
  assert {
    condition = toset([for each in aws_iam_role_policy_attachment.node : each.policy_arn]) == toset([
      "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy",
      "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy",
      "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",
    ])
    error_message = "nodes must have what it takes to join, to give pods addresses and to pull images, and no more"
  }
  assert {
    condition     = aws_route.internet.gateway_id == aws_internet_gateway.this.id && aws_route_table_association.nodes.subnet_id == aws_subnet.nodes.id
    error_message = "nodes must have a way to the internet, from which images are pulled"
  }
}

run "amd_has_an_image_of_its_own_that_knows_its_cluster" {
  command = apply

  variables {
    accelerator = "amd"
    ami_id      = "ami-0123456789abcdef0"
  }

  override_data {
    target = data.aws_ec2_instance_type.node
    values = {
      gpus                    = [{ count = 1, manufacturer = "AMD", memory_size = 16384, name = "Radeon Pro V520" }]
      supported_architectures = ["x86_64"]
    }
  }

  assert {
    condition     = aws_eks_node_group.this[0].ami_type == "CUSTOM" && aws_launch_template.node[0].image_id == "ami-0123456789abcdef0"
    error_message = "amd must have the image of ami_id"
  }
  assert {
    condition     = strcontains(base64decode(aws_launch_template.node[0].user_data), "\"name\": \"ddpjob\"")
    error_message = "an image of one's own must be told the name of its cluster"
  }
}
