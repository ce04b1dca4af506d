# A managed Kubernetes cluster. EKS makes its security group: all traffic between nodes and control plane, none from outside.

locals {
  clusters = local.is_cluster ? 1 : 0

  cluster_policies = toset(local.is_cluster ? ["AmazonEKSClusterPolicy"] : [])
  node_policies = toset(
    local.is_cluster ? ["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"] : []
  )
  policy_prefix = "arn:${data.aws_partition.this.partition}:iam::aws:policy"

  # How a node with an image of one's own finds its cluster.
  node_config = join("\n", [
    "MIME-Version: 1.0",
    "Content-Type: multipart/mixed; boundary=\"BOUNDARY\"",
    "",
    "--BOUNDARY",
    "Content-Type: application/node.eks.aws",
    "",
    yamlencode({
      apiVersion = "node.eks.aws/v1alpha1"
      kind       = "NodeConfig"
      spec = {
        cluster = {
          name                 = var.name
          apiServerEndpoint    = one(aws_eks_cluster.this[*].endpoint)
          certificateAuthority = one(flatten(aws_eks_cluster.this[*].certificate_authority[*].data))
          cidr                 = one(flatten(aws_eks_cluster.this[*].kubernetes_network_config[*].service_ipv4_cidr))
        }
      }
    }),
    "--BOUNDARY--",
    "",
  ])
}

data "aws_partition" "this" {}

resource "aws_iam_role" "cluster" {
  count       = local.clusters
  name_prefix = "${var.name}-"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "eks.amazonaws.com" } }]
  })
}

resource "aws_iam_role_policy_attachment" "cluster" {
  for_each   = local.cluster_policies
  role       = aws_iam_role.cluster[0].name
  policy_arn = "${local.policy_prefix}/${each.key}"
}

resource "aws_iam_role" "node" {
  count       = local.clusters
  name_prefix = "${var.name}-"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "ec2.amazonaws.com" } }]
  })
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each   = local.node_policies
  role       = aws_iam_role.node[0].name
  policy_arn = "${local.policy_prefix}/${each.key}"
}

resource "aws_eks_cluster" "this" {
  count    = local.clusters
  name     = var.name
  role_arn = aws_iam_role.cluster[0].arn
  version  = var.kubernetes_version

  vpc_config {
    subnet_ids              = [aws_subnet.nodes.id, aws_subnet.second[0].id]
    endpoint_private_access = true
    endpoint_public_access  = true
    public_access_cidrs     = var.allowed_cidrs
  }

  access_config {
    authentication_mode                         = "API"
    bootstrap_cluster_creator_admin_permissions = true
  }

  upgrade_policy {
    support_type = "STANDARD"
  }

  depends_on = [aws_iam_role_policy_attachment.cluster]
}

# EKS's own plugin for the network, which enforces NetworkPolicies only if it is asked to.
resource "aws_eks_addon" "network" {
  count                       = local.clusters
  cluster_name                = aws_eks_cluster.this[0].name
  addon_name                  = "vpc-cni"
  configuration_values        = jsonencode({ enableNetworkPolicy = "true" })
  resolve_conflicts_on_create = "OVERWRITE"
  resolve_conflicts_on_update = "OVERWRITE"
}

resource "aws_launch_template" "node" {
  count                  = local.clusters
  name_prefix            = "${var.name}-"
  update_default_version = true
  image_id               = var.ami_id
  user_data              = var.ami_id == null ? null : base64encode(local.node_config)

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_type           = "gp3"
      volume_size           = var.disk_gib
      encrypted             = "true"
      delete_on_termination = "true"
    }
  }

  metadata_options {
    http_tokens = "required"
    # One hop less than to a pod: the node's rights are not the training's.
    http_put_response_hop_limit = 1
  }

  tag_specifications {
    resource_type = "instance"
    tags          = merge(local.tags, { Name = var.name })
  }
}

resource "aws_eks_node_group" "this" {
  count          = local.clusters
  cluster_name   = aws_eks_cluster.this[0].name
  node_role_arn  = aws_iam_role.node[0].arn
  subnet_ids     = [aws_subnet.nodes.id]
  instance_types = [local.instance_type]
  ami_type       = var.ami_id != null ? "CUSTOM" : var.accelerator == "nvidia" ? "AL2023_x86_64_NVIDIA" : "AL2023_x86_64_STANDARD"
  labels         = { "ddpjob.dev/accelerator" = var.accelerator }

  scaling_config {
    min_size     = local.nodes
    desired_size = local.nodes
    max_size     = local.nodes
  }

  launch_template {
    id      = aws_launch_template.node[0].id
    version = aws_launch_template.node[0].latest_version
  }

  # Without a way to the internet, and without their rights, nodes do not join.
  depends_on = [aws_iam_role_policy_attachment.node, aws_route.internet, aws_route_table_association.nodes]
}
