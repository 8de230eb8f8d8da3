# One security group a role, and between two roles one rule: nothing else is let through.

locals {
  groups  = toset(["balancer", "gateway", "signer", "sink", "topics", "kafka", "endpoints"])
  workers = ["gateway", "signer", "sink", "topics"]

  to_groups = merge(
    { "balancer-gateway" = { from = "balancer", to = "gateway", port = 8080 } },
    { for role in local.workers : "${role}-kafka" => { from = role, to = "kafka", port = var.kafka.port } },
    { for role in local.workers : "${role}-endpoints" => { from = role, to = "endpoints", port = 443 } },
  )

  to_ranges = merge(
    { for cidr in var.upstream.cidrs : "gateway-upstream-${cidr}" => { from = "gateway", cidr = cidr, port = var.upstream.port } },
    { for pair in setproduct(local.workers, var.existing_endpoints.cidrs) : "${pair[0]}-endpoints-${pair[1]}" => { from = pair[0], cidr = pair[1], port = 443 } },
    { for pair in setproduct(local.workers, var.kafka.cidrs) : "${pair[0]}-kafka-${pair[1]}" => { from = pair[0], cidr = pair[1], port = var.kafka.port } },
  )
}

resource "aws_security_group" "role" {
  for_each    = local.groups
  name        = "${var.name}-${each.key}"
  description = "CacheMind: ${each.key}"
  vpc_id      = local.vpc_id
  tags        = { Name = "${var.name}-${each.key}" }
}

# To a group that is somebody else's: what it lets in is for its owner to say.
resource "aws_vpc_security_group_egress_rule" "existing_endpoints" {
  for_each = {
    for pair in setproduct(local.workers, var.existing_endpoints.security_group_ids) :
    "${pair[0]}-${pair[1]}" => { from = pair[0], to = pair[1] }
  }
  security_group_id            = aws_security_group.role[each.value.from].id
  referenced_security_group_id = each.value.to
  description                  = "To endpoints that were there"
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each          = toset(var.client_cidrs)
  security_group_id = aws_security_group.role["balancer"].id
  description       = "Applications"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_ingress_rule" "kafka_clients" {
  for_each          = toset(var.kafka.client_cidrs)
  security_group_id = aws_security_group.role["kafka"].id
  description       = "Applications that speak Kafka"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = var.kafka.port
  to_port           = var.kafka.port
}

resource "aws_vpc_security_group_ingress_rule" "between" {
  for_each                     = local.to_groups
  security_group_id            = aws_security_group.role[each.value.to].id
  referenced_security_group_id = aws_security_group.role[each.value.from].id
  description                  = "From ${each.value.from}"
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
}

resource "aws_vpc_security_group_egress_rule" "between" {
  for_each                     = local.to_groups
  security_group_id            = aws_security_group.role[each.value.from].id
  referenced_security_group_id = aws_security_group.role[each.value.to].id
  description                  = "To ${each.value.to}"
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
}

resource "aws_vpc_security_group_egress_rule" "outside" {
  for_each          = local.to_ranges
  security_group_id = aws_security_group.role[each.value.from].id
  description       = each.key
  cidr_ipv4         = each.value.cidr
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
}

# Image layers come from S3 as well.
resource "aws_vpc_security_group_egress_rule" "s3" {
  for_each          = toset(local.workers)
  security_group_id = aws_security_group.role[each.key].id
  description       = "S3 by its endpoint"
  prefix_list_id    = local.s3_list
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}
