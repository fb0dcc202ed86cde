/* A producer's messages as frames with the broker's fields blank. The bytes are those of
 * formats/batch_frames.py, which also says what does not fit. */
#ifndef STRATAMQ_ENCODING_H
#define STRATAMQ_ENCODING_H

#include "batches.h"

#define MAX_PROPERTIES_BYTES 32767
#define MAX_BODY_BYTES (1 << 30)
#define MOST_MEAN_BYTES 8192 /* to copy larger frames once more costs more than is saved */

typedef struct {
    const uint8_t *body, *properties;
    int64_t body_length, properties_length;
} Row;

/* What the frames of a run have in common. `middle`: from behind BODYCRC to BODYLENGTH. */
typedef struct {
    uint32_t magic;
    const uint8_t *middle, *topic, *ending;
    int64_t middle_length, topic_length, ending_length;
} Shape;

/* Whether a separator stands between the properties and the ending. */
static int is_separated(const Shape *shape, const Row *row)
{
    return shape->ending_length && row->properties_length && row->properties[row->properties_length - 1] != 2;
}

/* 0: it does not fit. */
static int64_t size_of_frame(const Shape *shape, const Row *row)
{
    int64_t properties = row->properties_length + is_separated(shape, row) + shape->ending_length;
    if (properties > MAX_PROPERTIES_BYTES || row->body_length > MAX_BODY_BYTES)
        return 0;
    return 12 + shape->middle_length + 4 + row->body_length + shape->topic_length + 2 + properties;
}

static inline uint8_t *copied(uint8_t *at, const uint8_t *from, int64_t length)
{
    memcpy(at, from, (size_t)length);
    return at + length;
}

/* Write one frame; where the next begins. */
static uint8_t *put_frame(uint8_t *at, int32_t size, const Shape *shape, const Row *row)
{
    int separated = is_separated(shape, row);
    uint64_t properties = (uint64_t)(row->properties_length + separated + shape->ending_length);
    put_big32(at, (uint32_t)size);
    put_big32(at + 4, shape->magic);
    put_big32(at + BODY_CRC_POSITION, crc32_31(row->body, (size_t)row->body_length));
    at = copied(at + 12, shape->middle, shape->middle_length);
    put_big32(at, (uint32_t)row->body_length);
    at = copied(at + 4, row->body, row->body_length);
    at = copied(at, shape->topic, shape->topic_length);
    *at++ = (uint8_t)(properties >> 8);
    *at++ = (uint8_t)properties;
    at = copied(at, row->properties, row->properties_length);
    if (separated)
        *at++ = 2;
    return copied(at, shape->ending, shape->ending_length);
}

#endif
