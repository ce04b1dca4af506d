# A network of its own. Nothing in it accepts a connection from outside unless a rule says so.

resource "aws_vpc" "this" {
  cidr_block           = "10.42.0.0/16"
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = { Name = var.name }
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = var.name }
}

# All nodes are in one zone, between whose machines traffic is fast and free.
resource "aws_subnet" "nodes" {
  vpc_id                  = aws_vpc.this.id
  cidr_block              = cidrsubnet(aws_vpc.this.cidr_block, 4, 0)
  availability_zone       = local.node_zone
  map_public_ip_on_launch = true
  tags                    = { Name = "${var.name}-nodes" }

  lifecycle {
    # A zone that is added to the region later must not move everything.
    ignore_changes = [availability_zone]
  }
}

# EKS wants its control plane in two zones. No node is here.
resource "aws_subnet" "second" {
  count             = local.clusters
  vpc_id            = aws_vpc.this.id
  cidr_block        = cidrsubnet(aws_vpc.this.cidr_block, 4, 1)
  availability_zone = local.second_zone
  tags              = { Name = "${var.name}-second" }

  lifecycle {
    ignore_changes = [availability_zone]
  }
}

resource "aws_route_table" "this" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = var.name }
}

resource "aws_route" "internet" {
  route_table_id         = aws_route_table.this.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this.id
}

resource "aws_route_table_association" "nodes" {
  subnet_id      = aws_subnet.nodes.id
  route_table_id = aws_route_table.this.id
}
