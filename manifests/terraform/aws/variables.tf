variable "platform" {
  description = "What is provisioned: eks, a Kubernetes cluster for DDPJobs, or ec2, machines to log in to by ssh."
  type        = string
  default     = "eks"
  nullable    = false

  validation {
    condition     = contains(["eks", "ec2"], var.platform)
    error_message = "platform must be eks or ec2."
  }
}

variable "multinode_torchrun" {
  description = "Whether a training runs on more than one machine."
  type        = bool
  default     = false
  nullable    = false
}

variable "nodes" {
  description = "How many machines, 2 to 64 and 2 unless set; only with multinode_torchrun, without which it is one."
  type        = number
  default     = null

  validation {
    condition     = var.nodes == null || (try(floor(var.nodes) == var.nodes, false) && coalesce(var.nodes, 2) >= 2 && coalesce(var.nodes, 2) <= 64)
    error_message = "nodes must be a whole number from 2 to 64; for one machine, leave it out and set multinode_torchrun = false."
  }

  validation {
    condition     = var.nodes == null || var.multinode_torchrun
    error_message = "nodes is set, but multinode_torchrun is false, which means one machine: set multinode_torchrun = true, or leave nodes out."
  }
}

variable "accelerator" {
  description = "What the machines compute on: cpu, nvidia or amd."
  type        = string
  default     = "cpu"
  nullable    = false

  validation {
    condition     = contains(["cpu", "nvidia", "amd"], var.accelerator)
    error_message = "accelerator must be cpu, nvidia or amd."
  }
}

variable "instance_type" {
  description = "The EC2 instance type; unless set, t3.xlarge for cpu, g4dn.xlarge for nvidia, g4ad.xlarge for amd. What it has is checked against accelerator."
  type        = string
  default     = null

  validation {
    condition     = var.instance_type == null || can(regex("^[a-z][a-z0-9-]*\\.[a-z0-9-]+$", var.instance_type))
    error_message = "instance_type must look like g4dn.xlarge: a family, a dot and a size."
  }
}

variable "allowed_cidrs" {
  description = "IPv4 ranges from which the cluster's API (eks), or port 22 (ec2), can be reached: [\"203.0.113.7/32\"] for one address. There is no default: nothing is open to the world."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.allowed_cidrs) > 0 && length(var.allowed_cidrs) <= 40
    error_message = "allowed_cidrs must have 1 to 40 ranges. An empty list would lock you out of machines, and open a cluster's API to the world."
  }

  validation {
    condition     = alltrue([for each in var.allowed_cidrs : can(regex("^[0-9.]+/[0-9]+$", each)) && try(cidrsubnet(each, 0, 0) == each, false)])
    error_message = "allowed_cidrs must be IPv4 ranges whose host bits are zero, such as 203.0.113.0/24 or 203.0.113.7/32."
  }

  validation {
    condition     = alltrue([for each in var.allowed_cidrs : try(tonumber(split("/", each)[1]) >= 8, true)])
    error_message = "allowed_cidrs must not have ranges wider than /8: 0.0.0.0/0 is the whole world."
  }
}

variable "ssh_public_key" {
  description = "What ssh logs in with, such as the contents of ~/.ssh/id_ed25519.pub; for ec2 only, since no one logs in to the nodes of a cluster."
  type        = string
  default     = null

  validation {
    condition     = var.ssh_public_key == null || can(regex("^(ssh-ed25519|ssh-rsa) AAAA[A-Za-z0-9+/]+={0,2}( [^\\n]*)?\\n?$", var.ssh_public_key))
    error_message = "ssh_public_key must be one line that begins with ssh-ed25519 or ssh-rsa, which EC2 supports: the contents of the file that ends in .pub, never the private key."
  }

  validation {
    condition     = var.platform != "ec2" || var.ssh_public_key != null
    error_message = "ssh_public_key must be set for platform = ec2: without it nobody could log in."
  }
}

variable "region" {
  description = "The AWS region."
  type        = string
  default     = "us-east-1"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]+$", var.region))
    error_message = "region must look like us-east-1; a zone such as us-east-1a is chosen by itself."
  }
}

variable "name" {
  description = "The name of the cluster, and the beginning of the names of all else."
  type        = string
  default     = "ddpjob"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$", var.name))
    error_message = "name must have 1 to 30 lower-case letters, digits and hyphens, begin with a letter and not end in a hyphen."
  }

  validation {
    condition     = !startswith("${var.name}-", "sg-")
    error_message = "name must not be sg or begin with sg-, which AWS keeps for ids of security groups."
  }
}

variable "disk_gib" {
  description = "The size of each machine's root disk in GiB, 50 to 16384; images with torch for GPUs take 10 and more."
  type        = number
  default     = 100
  nullable    = false

  validation {
    condition     = floor(var.disk_gib) == var.disk_gib && var.disk_gib >= 50 && var.disk_gib <= 16384
    error_message = "disk_gib must be a whole number from 50 to 16384."
  }
}

variable "kubernetes_version" {
  description = "The cluster's version; ddpjob needs 1.31 or newer."
  type        = string
  default     = "1.34"
  nullable    = false

  validation {
    condition     = can(regex("^1\\.[0-9]+$", var.kubernetes_version)) && try(tonumber(split(".", var.kubernetes_version)[1]) >= 31, false)
    error_message = "kubernetes_version must be 1.31 or newer, without a patch level, such as 1.34."
  }
}

variable "ami_id" {
  description = "An image of your own instead of the usual one. eks with amd needs one: EKS's own images have no driver for AMD's GPUs."
  type        = string
  default     = null

  validation {
    condition     = var.ami_id == null || can(regex("^ami-[0-9a-f]{8,17}$", var.ami_id))
    error_message = "ami_id must look like ami-0123456789abcdef0."
  }

  validation {
    condition     = var.ami_id != null || var.platform != "eks" || var.accelerator != "amd"
    error_message = "ami_id must be set for platform = eks with accelerator = amd: an image made from EKS's for Amazon Linux 2023, with the driver amdgpu."
  }
}
