variable "name" {
  type        = string
  description = "First part of the name of everything that is created."
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,19}$", var.name))
    error_message = "name is 2 to 20 of a-z, 0-9 and -, and begins with a letter."
  }
}

variable "bucket" {
  type        = string
  description = "Name of the bucket of shipped snapshots."
}

variable "storage_key_arn" {
  type        = string
  description = "KMS key that encrypts them: they hold prompts and answers."
}

variable "access_log_bucket" {
  type        = string
  description = "Bucket that takes access logs."
}

variable "undelete_days" {
  type        = number
  default     = 7
  description = "How long a file that was deleted or replaced can be brought back."
  validation {
    condition     = var.undelete_days >= 1
    error_message = "undelete_days is at least 1."
  }
}
