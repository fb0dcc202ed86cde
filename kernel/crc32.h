/* CRC-32 (IEEE, reflected) with the top bit cleared, as RocketMQ stores it: spec 2.2.
 *
 * By carry-less multiplication where the processor has it ("Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction", Intel, 2009), otherwise eight bytes at a time by tables. */
#ifndef STRATAMQ_CRC32_H
#define STRATAMQ_CRC32_H

#include "bytes.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_FOLDING 1
#include <immintrin.h>
#else
#define HAVE_FOLDING 0
#endif

#define CRC_MASK 0x7FFFFFFFu
#define FOLDED_BYTES 64 /* shorter texts go by tables */

static uint32_t crc_table[8][256];
static int crc_folds;

static void crc32_prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        crc_table[0][byte] = crc;
    }
    for (int place = 1; place < 8; place++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_table[place - 1][byte];
            crc_table[place][byte] = crc >> 8 ^ crc_table[0][crc & 0xFF];
        }
#if HAVE_FOLDING
    crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static uint32_t crc32_by_tables(uint32_t crc, const uint8_t *at, size_t length)
{
    for (; length >= 8; at += 8, length -= 8) {
        uint32_t low = crc ^ (at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24);
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF]
            ^ crc_table[5][low >> 16 & 0xFF] ^ crc_table[4][low >> 24]
            ^ crc_table[3][at[4]] ^ crc_table[2][at[5]] ^ crc_table[1][at[6]] ^ crc_table[0][at[7]];
    }
    for (; length; at++, length--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 0xFF];
    return crc;
}

#if HAVE_FOLDING
#define FOLDS __attribute__((target("pclmul,sse4.1")))

FOLDS static inline __m128i loaded(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

/* The register `lane` moved over the bytes behind it, and the bytes `next` added. */
FOLDS static inline __m128i folded(__m128i lane, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(lane, by, 0x00), high = _mm_clmulepi64_si128(lane, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* `length` is at least 64, and a multiple of 16. */
FOLDS static uint32_t crc32_by_folding(uint32_t crc, const uint8_t *at, size_t length)
{
    const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i to_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i even_words = _mm_setr_epi32(-1, 0, -1, 0);

    __m128i a = _mm_xor_si128(loaded(at), _mm_cvtsi32_si128((int)crc));
    __m128i b = loaded(at + 16), c = loaded(at + 32), d = loaded(at + 48);
    for (at += 64, length -= 64; length >= 64; at += 64, length -= 64) {
        a = folded(a, by_four, loaded(at));
        b = folded(b, by_four, loaded(at + 16));
        c = folded(c, by_four, loaded(at + 32));
        d = folded(d, by_four, loaded(at + 48));
    }
    a = folded(folded(folded(a, by_one, b), by_one, c), by_one, d);
    for (; length; at += 16, length -= 16)
        a = folded(a, by_one, loaded(at));

    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_one, 0x10));
    b = _mm_clmulepi64_si128(_mm_and_si128(a, even_words), to_64, 0x00);
    a = _mm_xor_si128(_mm_srli_si128(a, 4), b);
    b = _mm_clmulepi64_si128(_mm_and_si128(a, even_words), barrett, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, even_words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}
#endif

static uint32_t crc32_31(const uint8_t *at, size_t length)
{
    uint32_t crc = 0xFFFFFFFFu;
#if HAVE_FOLDING
    if (crc_folds && length >= FOLDED_BYTES) {
        size_t many = length & ~(size_t)15;
        crc = crc32_by_folding(crc, at, many);
        at += many;
        length -= many;
    }
#endif
    return ~crc32_by_tables(crc, at, length) & CRC_MASK;
}

#endif
