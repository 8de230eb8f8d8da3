variable "prefix" {
  type        = string
  default     = "cachemind"
  description = "First part of topic names."
  validation {
    condition     = can(regex("^[a-zA-Z0-9._-]{1,200}$", var.prefix))
    error_message = "prefix is 1 to 200 of a-z A-Z 0-9 . _ -"
  }
}

variable "partitions" {
  type        = number
  default     = 4
  description = "WAL partitions. Cannot be changed later: a namespace would move to another one."
  validation {
    condition     = var.partitions >= 1 && var.partitions <= 1024 && floor(var.partitions) == var.partitions
    error_message = "partitions is a whole number from 1 to 1024."
  }
}

variable "replication_factor" {
  type        = number
  default     = 3
  description = "Copies of each record."
  validation {
    condition     = var.replication_factor >= 3
    error_message = "replication_factor is at least 3: with fewer, an acknowledged record can be lost with a broker."
  }
}

variable "retention_days" {
  type        = map(number)
  default     = {}
  description = "By topic, without prefix, for how long records are kept; -1: for ever. What is not named is as the program makes it."
  validation {
    condition     = alltrue([for days in values(var.retention_days) : days == -1 || days >= 1])
    error_message = "retention_days is at least one day, or -1 for ever."
  }
  validation {
    condition     = length(setsubtract(keys(var.retention_days), ["requests", "replies", "wal", "audit", "audit.cuts", "dlq"])) == 0
    error_message = "retention_days names topics that keep records by time: requests, replies, wal, audit, audit.cuts, dlq."
  }
}

variable "accounts" {
  type        = map(string)
  default     = {}
  description = "Kafka's user name by role, where it is not the role's own name."
  validation {
    condition     = length(setsubtract(keys(var.accounts), keys(jsondecode(file("${path.module}/acls.json"))))) == 0
    error_message = "accounts names roles: ${join(", ", keys(jsondecode(file("${path.module}/acls.json"))))}."
  }
  validation {
    condition     = alltrue([for user in values(var.accounts) : can(regex("^[^,;=*]+$", user))])
    error_message = "accounts names one user of Kafka for each role, without User: before it and without * , ; =."
  }
}

variable "key_ceremony" {
  type        = bool
  default     = false
  description = "Whether the log's keys are made or exchanged now: for that hour alone the role `ceremony` may write to the WAL."
}
