/* Ready frames of a pass: whether they are plain, and the broker's fields in them. The rules are those
 * of services/commitlog/stratamq_commitlog/write/few_frames.py. */
#ifndef STRATAMQ_BATCHES_H
#define STRATAMQ_BATCHES_H

#include "frames.h"

#define STAMP_BYTES 16              /* store time, and an IPv4 host */
#define ZERO_RUN_BYTES 512
#define MAX_V1_TOPIC_BYTES 127
#define ITEM_HEAD_BYTES 16
#define ITEM_BYTES 24
#define SOURCE_BYTES 27 /* PSRC, 0x01, and two numbers of eleven digits */
#define BEFORE_CHECKSUM (RECORD_CRC_BYTES + 1)

static const uint8_t empty_checksum[] = "__CRC32#\x01" "0000000000\x02";
static const uint8_t source_name[] = "PSRC\x01";
static const uint8_t letters[] = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

typedef struct {
    uint32_t forbidden_flags;
    int64_t max_body_bytes;
    int sealed;     /* frames end in room for a checksum of the record */
    int own;        /* a service of the broker sent them */
} Rules;

static int64_t item_before_end(int sealed)
{
    return ITEM_BYTES + (sealed ? BEFORE_CHECKSUM : 0);
}

static int may_be_a_copy(const uint8_t *end)
{
    /* A plain frame is longer than both. */
    return !memcmp(end - SOURCE_BYTES, source_name, sizeof source_name - 1)
        || !memcmp(end - SOURCE_BYTES - BEFORE_CHECKSUM, source_name, sizeof source_name - 1);
}

/* `item`: what stands before the sequence in a numbered frame, or NULL. */
static int is_plain(const uint8_t *frame, int64_t size, const uint8_t *topic, int64_t topic_length,
                    const uint8_t *item, const Rules *rules)
{
    Parts parts;
    if (!frame_parts(frame, size, &parts) || parts.version2)
        return 0;
    if (parts.sys_flag & (rules->forbidden_flags | BORN_HOST_V6 | STORE_HOST_V6))
        return 0;
    if (!parts.body_length || parts.body_length > rules->max_body_bytes)
        return 0;
    if (!topic_length || topic_length > MAX_V1_TOPIC_BYTES || parts.topic_length != topic_length
        || memcmp(frame + parts.topic, topic, (size_t)topic_length))
        return 0;
    if (!parts.properties_length || parts.properties_length >= ZERO_RUN_BYTES)
        return 0;
    const uint8_t *end = frame + size;
    if (item) {
        int64_t back = item_before_end(rules->sealed);
        if (parts.properties_length < back || memcmp(end - back, item, ITEM_HEAD_BYTES))
            return 0;
    } else if (!rules->own && may_be_a_copy(end)) {
        return 0;
    }
    if (!rules->sealed) {
        if (end[-1] <= 2)
            return 0;
    } else if (parts.properties_length < RECORD_CRC_BYTES
               || memcmp(end - RECORD_CRC_BYTES, empty_checksum, RECORD_CRC_BYTES)) {
        return 0;
    }
    return body_holds(frame, &parts);
}

static inline void put_big32(uint8_t *at, uint32_t value)
{
    for (int place = 0; place < 4; place++)
        at[place] = (uint8_t)(value >> (24 - 8 * place));
}

static inline void put_big64(uint8_t *at, uint64_t value)
{
    put_big32(at, (uint32_t)(value >> 32));
    put_big32(at + 4, (uint32_t)value);
}

static void put_sequence(uint8_t *at, uint64_t sequence)
{
    for (int place = ITEM_BYTES - ITEM_HEAD_BYTES - 1; place >= 0; place--, sequence >>= 6)
        at[place] = letters[sequence & 63];
}

static void put_record_checksum(uint8_t *frame, int64_t size)
{
    uint8_t *digits = frame + size - RECORD_CRC_BYTES + 9;
    uint32_t crc = crc32_31(frame, (size_t)(size - RECORD_CRC_BYTES));
    for (int place = 0; place < RECORD_CRC_DIGITS; place++, crc /= 10)
        digits[place] = (uint8_t)('0' + crc % 10);
}

#endif
