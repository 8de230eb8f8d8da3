variable "name" {
  type        = string
  description = "First part of the name of everything that is created."
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,19}$", var.name))
    error_message = "name is 2 to 20 of a-z, 0-9 and -, and begins with a letter."
  }
}

variable "retention_days" {
  type        = number
  default     = 90
  description = "How long log lines are kept. They never hold prompts or answers."
  validation {
    condition     = contains([30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.retention_days)
    error_message = "retention_days is one of the numbers that CloudWatch takes, from 30: 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, ..."
  }
}

variable "storage_key_arn" {
  type        = string
  description = "KMS key that encrypts log lines."
}

variable "alarm_topic_arns" {
  type        = list(string)
  description = "SNS topics that are told of alarms."
  validation {
    condition     = length(var.alarm_topic_arns) > 0 && alltrue([for arn in var.alarm_topic_arns : can(regex("^arn:aws[a-z-]*:sns:", arn))])
    error_message = "alarm_topic_arns names at least one SNS topic: an alarm that nobody hears is none."
  }
}

variable "balancer" {
  type        = object({ suffix = string, group_suffix = string })
  description = "Load balancer and target group as metrics name them."
}

variable "ecs_cluster" {
  type        = string
  description = "ECS cluster, for disk."
}

variable "kafka_cluster" {
  type        = object({ name = string, brokers = number })
  default     = null
  description = "MSK cluster; null where the cluster is not made here."
}

variable "limits" {
  type = object({
    fold_lag_records  = optional(number, 1000)
    audit_lag_records = optional(number, 10000)
    error_ratio       = optional(number, 0.01)
    disk_percent      = optional(number, 75)
  })
  default     = {}
  description = "From where on an alarm sounds."
  validation {
    condition     = var.limits.fold_lag_records > 0 && var.limits.audit_lag_records > 0 && var.limits.error_ratio > 0 && var.limits.error_ratio < 1 && var.limits.disk_percent > 0 && var.limits.disk_percent < 100
    error_message = "limits.error_ratio is between 0 and 1, limits.disk_percent between 0 and 100, the lags are above 0."
  }
}
