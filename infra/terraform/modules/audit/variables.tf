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
  description = "Name of the bucket of sealed receipts and cuts."
}

variable "access_log_bucket" {
  type        = string
  description = "Name of the bucket that takes the access logs of all others."
}

variable "roles" {
  type        = map(object({ name = string, arn = string }))
  description = "Roles by what they are for, as module identities gives them."
}

variable "lock_days" {
  type        = number
  default     = 365
  description = "For how long nobody, the account's owner among them, can delete or change an object. Cannot be shortened afterwards."
  validation {
    condition     = var.lock_days >= 1 && var.lock_days <= 36500 && floor(var.lock_days) == var.lock_days
    error_message = "lock_days is a whole number of days, at least 1 and at most 36500."
  }
}

variable "cold_after_days" {
  type        = number
  default     = 90
  description = "When objects move to cold storage, which is still read at once."
  validation {
    condition     = var.cold_after_days >= 30
    error_message = "cold_after_days is at least 30."
  }
}

variable "access_log_days" {
  type        = number
  default     = 400
  description = "How long access logs are kept."
  validation {
    condition     = var.access_log_days >= 90
    error_message = "access_log_days is at least 90."
  }
}
