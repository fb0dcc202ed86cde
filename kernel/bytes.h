/* Reads and writes at any address, aligned or not, and the one check of a stretch within a buffer. */
#ifndef STRATAMQ_BYTES_H
#define STRATAMQ_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t big32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int16_t big16(const uint8_t *at)
{
    return (int16_t)(uint16_t)(at[0] << 8 | at[1]);
}

static inline uint64_t big64(const uint8_t *at)
{
    return (uint64_t)big32(at) << 32 | big32(at + 4);
}

/* Element `row` of an array of numbers as NumPy stores them. */
static inline int64_t get64(const void *array, ptrdiff_t row)
{
    int64_t value;
    memcpy(&value, (const char *)array + row * 8, 8);
    return value;
}

static inline int32_t get32(const void *array, ptrdiff_t row)
{
    int32_t value;
    memcpy(&value, (const char *)array + row * 4, 4);
    return value;
}

static inline void put64(void *array, ptrdiff_t row, int64_t value)
{
    memcpy((char *)array + row * 8, &value, 8);
}

static inline void put32(void *array, ptrdiff_t row, int32_t value)
{
    memcpy((char *)array + row * 4, &value, 4);
}

/* Whether [start, start + length) lies in a buffer of `there` bytes. No sum that could overflow. */
static inline int within(int64_t start, int64_t length, ptrdiff_t there)
{
    return start >= 0 && length >= 0 && start <= there && length <= there - start;
}

#endif
