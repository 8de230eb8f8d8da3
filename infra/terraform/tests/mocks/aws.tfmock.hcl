# What AWS would answer, in AWS's own spelling, so that the provider's checks pass.
mock_data "aws_caller_identity" {
  defaults = { account_id = "111122223333" }
}

mock_data "aws_region" {
  defaults = { name = "eu-central-1" }
}

mock_data "aws_partition" {
  defaults = { partition = "aws" }
}

mock_resource "aws_iam_role" {
  defaults = { arn = "arn:aws:iam::111122223333:role/other" }
}

mock_resource "aws_kms_key" {
  defaults = { arn = "arn:aws:kms:eu-central-1:111122223333:key/other", key_id = "other" }
}

mock_resource "aws_s3_bucket" {
  defaults = { arn = "arn:aws:s3:::other" }
}

mock_resource "aws_security_group" {
  defaults = { id = "sg-other" }
}

mock_resource "aws_subnet" {
  defaults = { id = "subnet-other" }
}

mock_resource "aws_cloudwatch_log_group" {
  defaults = { arn = "arn:aws:logs:eu-central-1:111122223333:log-group:other" }
}

mock_resource "aws_secretsmanager_secret" {
  defaults = { arn = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:other" }
}

mock_resource "aws_msk_configuration" {
  defaults = { arn = "arn:aws:kafka:eu-central-1:111122223333:configuration/c/1", latest_revision = 1 }
}

mock_resource "aws_msk_cluster" {
  defaults = {
    arn                          = "arn:aws:kafka:eu-central-1:111122223333:cluster/c/1"
    bootstrap_brokers_sasl_scram = "b-1.example:9096,b-2.example:9096,b-3.example:9096"
  }
}

mock_resource "aws_lb" {
  defaults = {
    arn        = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:loadbalancer/app/c/1"
    arn_suffix = "app/c/1"
  }
}

mock_resource "aws_lb_target_group" {
  defaults = {
    arn        = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/c/1"
    arn_suffix = "targetgroup/c/1"
  }
}

mock_resource "aws_ecs_task_definition" {
  defaults = { arn = "arn:aws:ecs:eu-central-1:111122223333:task-definition/c:1" }
}
