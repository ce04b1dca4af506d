terraform {
  # From 1.9 on, the check of a variable may name other variables.
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0, < 7.0"
    }
  }
}

locals {
  tags = { "ddpjob.dev/provisioned-as" = var.name }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = local.tags
  }
}
