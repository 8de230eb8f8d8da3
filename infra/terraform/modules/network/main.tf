# No internet gateway, no NAT, no public address: AWS's own services are reached by
# endpoints, Kafka and the model server inside.

data "aws_region" "here" {}

locals {
  made       = var.existing == null
  zones      = local.made ? { for number, zone in var.availability_zones : zone => number } : {}
  vpc_id     = local.made ? aws_vpc.this[0].id : var.existing.vpc_id
  subnet_ids = local.made ? [for zone in var.availability_zones : aws_subnet.private[zone].id] : var.existing.subnet_ids
  routes     = local.made ? [aws_route_table.private[0].id] : var.existing.route_table_ids

  # Two endpoints of one service cannot both answer to its name in a network, nor two of S3
  # stand in one table of routes: what is there already is used.
  endpoints = setsubtract(["ecr.api", "ecr.dkr", "kms", "logs", "secretsmanager"], var.existing_endpoints.services)
  makes_s3  = !contains(var.existing_endpoints.services, "s3")
  s3_list   = local.makes_s3 ? aws_vpc_endpoint.s3[0].prefix_list_id : data.aws_ec2_managed_prefix_list.s3[0].id
}

resource "aws_vpc" "this" {
  count                = local.made ? 1 : 0
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = { Name = var.name }
}

# AWS makes this group with every network; with no rules nothing can be put into it by mistake.
resource "aws_default_security_group" "closed" {
  count  = local.made ? 1 : 0
  vpc_id = aws_vpc.this[0].id
}

resource "aws_subnet" "private" {
  for_each                = local.zones
  vpc_id                  = aws_vpc.this[0].id
  availability_zone       = each.key
  cidr_block              = cidrsubnet(var.cidr, 4, each.value)
  map_public_ip_on_launch = false
  tags                    = { Name = "${var.name}-private-${each.key}" }
}

resource "aws_route_table" "private" {
  count  = local.made ? 1 : 0
  vpc_id = aws_vpc.this[0].id
  tags   = { Name = "${var.name}-private" }
}

resource "aws_route_table_association" "private" {
  for_each       = aws_subnet.private
  subnet_id      = each.value.id
  route_table_id = aws_route_table.private[0].id
}

resource "aws_vpc_endpoint" "s3" {
  count             = local.makes_s3 ? 1 : 0
  vpc_id            = local.vpc_id
  service_name      = "com.amazonaws.${data.aws_region.here.name}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = local.routes
  tags              = { Name = "${var.name}-s3" }
}

data "aws_ec2_managed_prefix_list" "s3" {
  count = local.makes_s3 ? 0 : 1
  name  = "com.amazonaws.${data.aws_region.here.name}.s3"
}

resource "aws_vpc_endpoint" "service" {
  for_each            = local.endpoints
  vpc_id              = local.vpc_id
  service_name        = "com.amazonaws.${data.aws_region.here.name}.${each.key}"
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  subnet_ids          = local.subnet_ids
  security_group_ids  = [aws_security_group.role["endpoints"].id]
  tags                = { Name = "${var.name}-${each.key}" }
}

resource "aws_cloudwatch_log_group" "flow" {
  count             = local.made ? 1 : 0
  name              = "/${var.name}/flow"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.storage_key_arn
}

resource "aws_iam_role" "flow" {
  count = local.made ? 1 : 0
  name  = "${var.name}-flow"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "vpc-flow-logs.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "flow" {
  count = local.made ? 1 : 0
  name  = "flow"
  role  = aws_iam_role.flow[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
      Resource = "${aws_cloudwatch_log_group.flow[0].arn}:*"
    }]
  })
}

resource "aws_flow_log" "this" {
  count           = local.made ? 1 : 0
  vpc_id          = aws_vpc.this[0].id
  traffic_type    = "ALL"
  log_destination = aws_cloudwatch_log_group.flow[0].arn
  iam_role_arn    = aws_iam_role.flow[0].arn
}
