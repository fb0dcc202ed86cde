/* The properties of one message, taken apart: formats/properties.py has the rules, formats/javahash.py
 * those of hashes. Text must be well-formed UTF-8 here; what is not goes to Python, row by row. */
#ifndef STRATAMQ_PROPERTIES_H
#define STRATAMQ_PROPERTIES_H

#include "bytes.h"

#define MAX_ITEMS 64 /* names of one message are compared with each other: more go to Python */

typedef struct {
    const uint8_t *name, *value;
    int64_t name_length, value_length;
} Item;

/* The next item that has a name and a value, from *at on; 0 when there is none before `end`. */
static int next_item(const uint8_t **at, const uint8_t *end, Item *item)
{
    while (*at < end) {
        const uint8_t *begin = *at;
        const uint8_t *stop = memchr(begin, 2, (size_t)(end - begin));
        if (!stop)
            stop = end;
        *at = stop < end ? stop + 1 : end;
        const uint8_t *middle = memchr(begin, 1, (size_t)(stop - begin));
        if (middle && middle > begin && middle + 1 < stop) {
            *item = (Item){begin, middle + 1, middle - begin, stop - middle - 1};
            return 1;
        }
    }
    return 0;
}

static inline int is_named(const Item *item, const char *name, int64_t length)
{
    return item->name_length == length && memcmp(item->name, name, (size_t)length) == 0;
}

/* The next word between spaces, from *at on. */
static int next_word(const uint8_t **at, const uint8_t *end, const uint8_t **word, int64_t *length)
{
    while (*at < end && **at == ' ')
        ++*at;
    if (*at == end)
        return 0;
    *word = *at;
    const uint8_t *stop = memchr(*at, ' ', (size_t)(end - *at));
    if (!stop)
        stop = end;
    *length = stop - *at;
    *at = stop;
    return 1;
}

static inline int is_ascii(const uint8_t *at, int64_t length)
{
    uint64_t all = 0, word;
    for (; length >= 8; at += 8, length -= 8) {
        memcpy(&word, at, 8);
        all |= word;
    }
    for (; length; at++, length--)
        all |= *at;
    return !(all & 0x8080808080808080u);
}

/* One character from *at on, which is before `end`; -1 when it is not well-formed UTF-8. */
static int32_t next_character(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *byte = *at;
    int32_t first = *byte, more, least, character;
    if (first < 0x80) {
        *at = byte + 1;
        return first;
    }
    if (first < 0xC2 || first > 0xF4)
        return -1;
    more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    least = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
    if (end - byte <= more)
        return -1;
    character = first & (0x3F >> more);
    for (int32_t place = 1; place <= more; place++) {
        if ((byte[place] & 0xC0) != 0x80)
            return -1;
        character = character << 6 | (byte[place] & 0x3F);
    }
    if (character < least || character > 0x10FFFF || (character >= 0xD800 && character < 0xE000))
        return -1;
    *at = byte + more + 1;
    return character;
}

static int is_well_formed(const uint8_t *at, int64_t length)
{
    if (is_ascii(at, length))
        return 1;
    for (const uint8_t *end = at + length; at < end;)
        if (next_character(&at, end) < 0)
            return 0;
    return 1;
}

/* Java's hash of a text, continued from *hash over its UTF-16 units; 0: malformed. */
static int hash_text(const uint8_t *at, int64_t length, uint32_t *hash)
{
    uint32_t code = *hash;
    const uint8_t *end = at + length;
    if (is_ascii(at, length)) {
        for (; end - at >= 4; at += 4)
            code = code * 923521u + at[0] * 29791u + at[1] * 961u + at[2] * 31u + at[3];
        for (; at < end; at++)
            code = code * 31 + *at;
    } else {
        while (at < end) {
            int32_t character = next_character(&at, end);
            if (character < 0)
                return 0;
            if (character >= 0x10000) {
                code = code * 31 + (uint32_t)(0xD7C0 + (character >> 10));
                character = 0xDC00 | (character & 0x3FF);
            }
            code = code * 31 + (uint32_t)character;
        }
    }
    *hash = code;
    return 1;
}

static int32_t absolute_hash(uint32_t code)
{
    if (code == 0x80000000u)
        return 0;
    return (int32_t)(code & 0x80000000u ? 0u - code : code);
}

#endif
