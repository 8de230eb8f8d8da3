output "vpc_id" {
  description = "The network."
  value       = local.vpc_id
}

output "subnet_ids" {
  description = "Its private subnets."
  value       = local.subnet_ids
}

output "security_groups" {
  description = "Security group id by role."
  value       = { for role, group in aws_security_group.role : role => group.id }
}

output "endpoints" {
  description = "Services of AWS whose endpoint is made here."
  value       = sort(concat(tolist(local.endpoints), local.makes_s3 ? ["s3"] : []))
}

output "endpoint_clients" {
  description = "Security groups that endpoints which were there already have to let in, to port 443; their policies have to let in our roles. Empty where all are made here."
  value       = length(setsubtract(var.existing_endpoints.services, ["s3"])) == 0 ? [] : [for role in local.workers : aws_security_group.role[role].id]
}

output "reachable" {
  description = "Every range of addresses that may come in or be gone out to, for a look at the plan."
  value = {
    in    = [for rule in aws_vpc_security_group_ingress_rule.clients : "${rule.cidr_ipv4} to ${rule.from_port}"]
    kafka = [for rule in aws_vpc_security_group_ingress_rule.kafka_clients : "${rule.cidr_ipv4} to ${rule.from_port}"]
    out = concat(
      [for rule in aws_vpc_security_group_egress_rule.outside : "${rule.cidr_ipv4} to ${rule.from_port}"],
      [for rule in aws_vpc_security_group_egress_rule.existing_endpoints : "${rule.referenced_security_group_id} to ${rule.from_port}"],
    )
  }
}

output "public_addresses" {
  description = "Whether a subnet hands out public addresses; never."
  value       = anytrue([for subnet in aws_subnet.private : subnet.map_public_ip_on_launch])
}

output "policies" {
  description = "What the roles that are made here may do, as decoded JSON."
  value       = { for policy in aws_iam_role_policy.flow : policy.name => jsondecode(policy.policy) }
}
