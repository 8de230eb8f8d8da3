# The roles come before what they may use: a key's policy must name a role that exists.

locals {
  tasks = toset(["gateway", "signer", "sink", "topics"])

  by_tasks = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "Tasks"
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ecs-tasks.amazonaws.com" }
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.here.account_id } }
    }]
  })

  people = merge(
    { auditor = var.auditors },
    length(var.key_ceremony) > 0 ? { ceremony = var.key_ceremony } : {},
  )
}

data "aws_caller_identity" "here" {}

# What the processes of a task may do.
resource "aws_iam_role" "task" {
  for_each             = local.tasks
  name                 = "${var.name}-${each.key}"
  assume_role_policy   = local.by_tasks
  max_session_duration = 3600
}

# What ECS may do to start it: its image, its secrets, its log.
resource "aws_iam_role" "execution" {
  for_each             = local.tasks
  name                 = "${var.name}-${each.key}-start"
  assume_role_policy   = local.by_tasks
  max_session_duration = 3600
}

resource "aws_iam_role" "person" {
  for_each             = local.people
  name                 = "${var.name}-${each.key}"
  max_session_duration = 3600
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "People"
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { AWS = each.value }
      Condition = { Bool = { "aws:MultiFactorAuthPresent" = "true" } }
    }]
  })
}
