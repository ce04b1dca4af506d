# What both platforms have: the kind of machine, and where it is to be had.

locals {
  is_cluster    = var.platform == "eks"
  nodes         = var.multinode_torchrun ? coalesce(var.nodes, 2) : 1
  instance_type = coalesce(var.instance_type, { cpu = "t3.xlarge", nvidia = "g4dn.xlarge", amd = "g4ad.xlarge" }[var.accelerator])

  usable_zones = data.aws_availability_zones.usable.names
  node_zone    = sort(setintersection(data.aws_ec2_instance_type_offerings.zones.locations, local.usable_zones))[0]
  second_zone  = sort(setsubtract(local.usable_zones, [local.node_zone]))[0]
}

data "aws_ec2_instance_type" "node" {
  instance_type = local.instance_type

  lifecycle {
    postcondition {
      condition     = join(" ", distinct([for gpu in self.gpus : lower(gpu.manufacturer)])) == (var.accelerator == "cpu" ? "" : var.accelerator)
      error_message = "instance_type ${local.instance_type} does not fit accelerator = ${var.accelerator}: the makers of its GPUs are [${join(", ", self.gpus[*].manufacturer)}]."
    }
    postcondition {
      condition     = contains(self.supported_architectures, "x86_64")
      error_message = "instance_type ${local.instance_type} is no x86_64 machine, for which the images are."
    }
  }
}

data "aws_availability_zones" "usable" {
  state = "available"
  # Where EKS has no control planes.
  exclude_zone_ids = ["use1-az3", "usw1-az2", "cac1-az3"]

  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

data "aws_ec2_instance_type_offerings" "zones" {
  location_type = "availability-zone"

  filter {
    name   = "instance-type"
    values = [local.instance_type]
  }

  lifecycle {
    postcondition {
      condition     = length(setintersection(self.locations, local.usable_zones)) > 0
      error_message = "region ${var.region} does not offer instance_type ${local.instance_type}: choose another of the two."
    }
  }
}
