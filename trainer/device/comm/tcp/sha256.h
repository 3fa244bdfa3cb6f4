/*
 * SHA-256 (FIPS 180-4), and HMAC-SHA-256 (RFC 2104) over it, by which ranks prove to each other
 * that they have the same key. Stateless, any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_SIZE = 32 };

void sha256(const void *bytes, size_t size, uint8_t ret_hash[SHA256_SIZE]);
void sha256_hmac(const uint8_t key[SHA256_SIZE], const void *bytes, size_t size,
		 uint8_t ret_code[SHA256_SIZE]);
