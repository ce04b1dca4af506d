output "nodes" {
  description = "For ec2, the machines by node rank: the address between nodes, and the one to log in to."
  value = [
    for rank, node in aws_instance.node : { rank = rank, address = node.private_ip, public_address = node.public_ip }
  ]
}

output "kubeconfig_command" {
  description = "For eks, the command that adds the cluster to your kubeconfig."
  value       = local.is_cluster ? "aws eks update-kubeconfig --region ${var.region} --name ${var.name}" : null
}

output "ssh_commands" {
  description = "For ec2, how to log in to each machine, in the order of node ranks."
  value       = [for node in aws_instance.node : "ssh ubuntu@${node.public_ip}"]
}

output "torchrun_commands" {
  description = "For ec2, what to type on each machine, in the order of node ranks; what is trained comes after it."
  value = [
    for rank, node in aws_instance.node : join(" ", [
      "torchrun --nproc-per-node=1 --nnodes=${local.nodes} --node-rank=${rank}",
      "--rdzv-id=456 --rdzv-backend=c10d --rdzv-endpoint=${aws_instance.node[0].private_ip}:29603",
    ])
  ]
}
