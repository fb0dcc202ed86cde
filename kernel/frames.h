/* One frame of the log: where its parts lie, and whether its checksums hold. The byte table stands in
 * formats/frame_layout.py, the rules in formats/columns.py and formats/frame_verify.py. */
#ifndef STRATAMQ_FRAMES_H
#define STRATAMQ_FRAMES_H

#include "crc32.h"

#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define MAGIC_BLANK 0xCBD43194u
#define BLANK_BYTES 8
#define MIN_FRAME_BYTES 91
#define HEADER_BYTES 88 /* up to and including BODYLENGTH, with IPv4 hosts */
#define V6_EXTRA_BYTES 12
#define BODY_CRC_POSITION 8
#define QUEUE_ID_POSITION 12
#define PRODUCER_FLAG_POSITION 16
#define QUEUE_OFFSET_POSITION 20
#define PHYSICAL_OFFSET_POSITION 28
#define SYS_FLAG_POSITION 36
#define BORN_TIMESTAMP_POSITION 40
#define BORN_HOST_POSITION 48
#define STORE_TIMESTAMP_POSITION 56 /* this and the next with IPv4 hosts */
#define STORE_HOST_POSITION 64
#define AFTER_STORE_HOST_BYTES 16
#define V4_BYTES 8
#define COMPRESSED 0x1u
#define BORN_HOST_V6 0x10u
#define STORE_HOST_V6 0x20u

#define RECORD_CRC_BYTES 20
#define RECORD_CRC_DIGITS 10
#define ALMOST 6 /* so many of ten fixed places make a tail that was a checksum once */

/* Positions count from the frame's beginning. */
typedef struct {
    uint32_t sys_flag;
    int version2;
    int64_t body, body_length, topic, topic_length, properties, properties_length;
} Parts;

static int64_t body_position(uint32_t flags)
{
    return HEADER_BYTES + (flags & BORN_HOST_V6 ? V6_EXTRA_BYTES : 0)
         + (flags & STORE_HOST_V6 ? V6_EXTRA_BYTES : 0);
}

/* Whether `frame` of `size` bytes, all of them there, is one whose lengths agree with each other. */
static int frame_parts(const uint8_t *frame, int64_t size, Parts *parts)
{
    if (size < MIN_FRAME_BYTES || (int64_t)big32(frame) != size)
        return 0;
    uint32_t magic = big32(frame + 4), flags = big32(frame + SYS_FLAG_POSITION);
    if (magic != MAGIC_V1 && magic != MAGIC_V2)
        return 0;
    int version2 = magic == MAGIC_V2;
    int64_t body = body_position(flags);
    if (body >= size)
        return 0;
    int64_t body_length = (int32_t)big32(frame + body - 4);
    if (body_length < 0)
        body_length = 0;
    int64_t topic = body + body_length + 1 + version2;
    if (topic > size - 2)
        return 0;
    int64_t topic_length = version2 ? big16(frame + topic - 2) : (int8_t)frame[topic - 1];
    int64_t properties = topic + topic_length + 2;
    if (topic_length < 0 || properties > size)
        return 0;
    int64_t properties_length = big16(frame + properties - 2);
    if (properties_length < 0)
        properties_length = 0;
    if (properties + properties_length != size)
        return 0;
    *parts = (Parts){flags, version2, body, body_length, topic, topic_length, properties,
                     properties_length};
    return 1;
}

static int body_holds(const uint8_t *frame, const Parts *parts)
{
    return !parts->body_length
        || crc32_31(frame + parts->body, (size_t)parts->body_length) == big32(frame + BODY_CRC_POSITION);
}

/* How many of the ten places that are the same in every record checksum agree in this tail. */
static int agreeing_places(const uint8_t *tail)
{
    static const uint8_t name[9] = "__CRC32#\x01";
    int agreeing = tail[RECORD_CRC_BYTES - 1] == 2;
    for (int place = 0; place < 9; place++)
        agreeing += tail[place] == name[place];
    return agreeing;
}

/* The value of the ten digits, the lowest first; -1 where a byte is no digit. */
static int64_t stated_checksum(const uint8_t *digits)
{
    int64_t value = 0;
    for (int place = RECORD_CRC_DIGITS - 1; place >= 0; place--) {
        uint8_t digit = (uint8_t)(digits[place] - '0');
        if (digit > 9)
            return -1;
        value = value * 10 + digit;
    }
    return value;
}

/* Whether a frame is as it was written. `sealed`: it was written with a checksum of the record.
 * `unsure_topic`: no unsealed frame of this topic is vouched for. */
static int frame_verified(const uint8_t *frame, int64_t size, int sealed, const uint8_t *unsure_topic,
                          int64_t unsure_length)
{
    if (size < MIN_FRAME_BYTES)
        return 0;
    const uint8_t *tail = frame + size - RECORD_CRC_BYTES;
    int agreeing = agreeing_places(tail);
    if (agreeing == 10) {
        int64_t stated = stated_checksum(tail + 9);
        return stated == (int64_t)crc32_31(frame, (size_t)(size - RECORD_CRC_BYTES));
    }
    Parts parts;
    if (agreeing >= ALMOST || sealed || !frame_parts(frame, size, &parts) || !body_holds(frame, &parts))
        return 0;
    return !unsure_length || parts.topic_length != unsure_length
        || memcmp(frame + parts.topic, unsure_topic, (size_t)unsure_length) != 0;
}

#endif
