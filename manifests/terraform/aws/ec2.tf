# Machines to log in to by ssh.

locals {
  machines = local.is_cluster ? 0 : local.nodes

  # The Deep Learning Base AMI has NVIDIA's driver, Docker and its container toolkit; on the other, they are installed.
  image_parameter = (
    var.accelerator == "nvidia"
    ? "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
    : "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
  )
  packages = {
    cpu    = ["docker.io"]
    nvidia = []
    # The kernel's own driver amdgpu and its firmware, which Ubuntu's images for EC2 leave out.
    amd = ["docker.io", "linux-firmware", "linux-modules-extra-aws"]
  }[var.accelerator]
}

data "aws_ssm_parameter" "image" {
  count = local.is_cluster || var.ami_id != null ? 0 : 1
  name  = local.image_parameter
}

resource "aws_key_pair" "this" {
  count           = local.is_cluster ? 0 : 1
  key_name_prefix = "${var.name}-"
  public_key      = var.ssh_public_key
}

resource "aws_security_group" "nodes" {
  count       = local.is_cluster ? 0 : 1
  name_prefix = "${var.name}-"
  description = "Nodes of ${var.name}: ssh from the allowed ranges, and what a training needs between them"
  vpc_id      = aws_vpc.this.id
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each          = local.is_cluster ? toset([]) : var.allowed_cidrs
  security_group_id = aws_security_group.nodes[0].id
  description       = "ssh"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

# gloo, NCCL and MPI listen on ports that the kernel gives them, the rendezvous on 29603; mpirun starts its processes by ssh.
resource "aws_vpc_security_group_ingress_rule" "between_nodes" {
  for_each                     = local.machines > 1 ? { ssh = [22, 22], training = [1024, 65535] } : {}
  security_group_id            = aws_security_group.nodes[0].id
  description                  = "${each.key} between the nodes"
  referenced_security_group_id = aws_security_group.nodes[0].id
  ip_protocol                  = "tcp"
  from_port                    = each.value[0]
  to_port                      = each.value[1]
}

resource "aws_vpc_security_group_egress_rule" "all" {
  count             = local.is_cluster ? 0 : 1
  security_group_id = aws_security_group.nodes[0].id
  description       = "packages, images and data"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

resource "aws_instance" "node" {
  count                       = local.machines
  ami                         = var.ami_id != null ? var.ami_id : data.aws_ssm_parameter.image[0].insecure_value
  instance_type               = local.instance_type
  key_name                    = aws_key_pair.this[0].key_name
  subnet_id                   = aws_subnet.nodes.id
  vpc_security_group_ids      = [aws_security_group.nodes[0].id]
  associate_public_ip_address = true
  user_data                   = "#cloud-config\n${jsonencode({ packages = local.packages })}\n"
  tags                        = { Name = "${var.name}-${count.index}" }

  root_block_device {
    volume_type           = "gp3"
    volume_size           = var.disk_gib
    encrypted             = true
    delete_on_termination = true
  }

  metadata_options {
    http_tokens = "required"
  }

  lifecycle {
    # A newer image must not replace machines on which a training may run.
    ignore_changes = [ami, user_data]
  }

  # The packages are downloaded at the first boot.
  depends_on = [aws_route.internet, aws_route_table_association.nodes, aws_vpc_security_group_egress_rule.all]
}
