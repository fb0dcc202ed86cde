/* stratamq._kernel: what is done to every frame, in C. README.md says what each function promises;
 * the Python beside each call (formats/, table/) is its specification.
 *
 * Nothing here reads outside a buffer, allocates by a length from the wire, or raises for what stands
 * in frames: functions say how far the frames are good, and Python says what is wrong behind that.
 * The interpreter's lock is released while many bytes are read. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "batches.h"
#include "encoding.h"
#include "properties.h"

#define KERNEL_VERSION 6 /* formats/kernel.py names the one it was written for */
#define LONG_BYTES (1 << 20) /* some 0.1 ms: work on more than this releases the lock */
#define MAX_PROBES 32
#define MAX_BUFFERS 10

/* The buffers of one call, released together. */
typedef struct {
    Py_buffer views[MAX_BUFFERS];
    int count;
} Buffers;

static void release(Buffers *buffers)
{
    while (buffers->count)
        PyBuffer_Release(&buffers->views[--buffers->count]);
}

/* The memory of a contiguous buffer: `bytes` of it are needed, or -1 for any number. */
static void *take(Buffers *buffers, PyObject *from, int writable, Py_ssize_t bytes)
{
    Py_buffer *view = &buffers->views[buffers->count];
    if (PyObject_GetBuffer(from, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
        return NULL;
    buffers->count++;
    if (bytes >= 0 && view->len != bytes) {
        PyErr_Format(PyExc_ValueError, "a buffer has %zd bytes, and needs %zd", view->len, bytes);
        return NULL;
    }
    /* An empty buffer may have no address. */
    return view->buf ? view->buf : (void *)"";
}

static Py_ssize_t length_of(const Buffers *buffers, int number)
{
    return buffers->views[number].len;
}

static int arguments(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments, not %zd", given, wanted);
    return 0;
}

static PyObject *misplaced(Buffers *buffers)
{
    release(buffers);
    PyErr_SetString(PyExc_ValueError, "a stretch is not within the buffer");
    return NULL;
}

static PyObject *failed(Buffers *buffers)
{
    release(buffers);
    return NULL;
}

static PyThreadState *unlock(Py_ssize_t bytes)
{
    return bytes > LONG_BYTES ? PyEval_SaveThread() : NULL;
}

static void lock_again(PyThreadState *state)
{
    if (state)
        PyEval_RestoreThread(state);
}

enum { END, WITHIN, BLANK, MAGIC, LENGTH, ENOUGH }; /* ScanEnd, in its order */

/* scan(data, start, limit, most, sizes) -> (count, end, stop, size, magic): formats/frame_scan.py. */
static PyObject *scan(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 5))
        return NULL;
    Py_ssize_t position = PyLong_AsSsize_t(given[1]), limit = PyLong_AsSsize_t(given[2]);
    Py_ssize_t most = PyLong_AsSsize_t(given[3]);
    if (PyErr_Occurred())
        return NULL;
    const uint8_t *data = take(&buffers, given[0], 0, -1);
    void *sizes = data ? take(&buffers, given[4], 1, -1) : NULL;
    if (!sizes)
        return failed(&buffers);
    Py_ssize_t there = length_of(&buffers, 0);
    int limited = limit >= 0;
    if (limited && limit < there)
        there = limit;
    if (position < 0 || position > there)
        return misplaced(&buffers);
    if (most > length_of(&buffers, 1) / 8)
        most = length_of(&buffers, 1) / 8;

    Py_ssize_t found = 0;
    int32_t size = 0;
    uint32_t magic = 0;
    int stop = ENOUGH;
    PyThreadState *state = unlock(there - position);
    for (; found < most; found++) {
        if (there - position < BLANK_BYTES) {
            stop = position == there ? END : WITHIN;
            size = 0, magic = 0;
            break;
        }
        size = (int32_t)big32(data + position);
        magic = big32(data + position + 4);
        if (magic != MAGIC_V1 && magic != MAGIC_V2) {
            stop = magic == MAGIC_BLANK ? BLANK : MAGIC;
            break;
        }
        if (size < MIN_FRAME_BYTES || (limited && size > limit - position)) {
            stop = LENGTH;
            break;
        }
        if (size > there - position) {
            stop = WITHIN;
            break;
        }
        put64(sizes, found, size);
        position += size;
    }
    lock_again(state);
    release(&buffers);
    if (stop == ENOUGH)
        size = 0, magic = 0;
    return Py_BuildValue("nniiI", found, position, stop, size, magic);
}

enum { QUEUE_OFFSET, PHYSICAL_OFFSET, BORN_TIME, STORE_TIME, PREPARED, CRC, FLAGS, BODY, BODY_LENGTH,
       TOPIC, TOPIC_LENGTH, PROPERTIES, PROPERTIES_LENGTH, LONG_COLUMNS }; /* of 64 bits */
enum { QUEUE_ID, PRODUCER_FLAG, RECONSUME_TIMES, SHORT_COLUMNS };          /* of 32 bits */

/* Write the row of one frame. Columns lie one behind the other, `frames` numbers each. */
static void put_columns(const uint8_t *frame, int64_t start, const Parts *parts, void *longs, void *shorts,
                        Py_ssize_t frames, Py_ssize_t row)
{
    int64_t born_extra = parts->sys_flag & BORN_HOST_V6 ? V6_EXTRA_BYTES : 0;
    const uint8_t *before_body = frame + parts->body - AFTER_STORE_HOST_BYTES;
    const int64_t values[LONG_COLUMNS] = {
        [QUEUE_OFFSET] = (int64_t)big64(frame + QUEUE_OFFSET_POSITION),
        [PHYSICAL_OFFSET] = (int64_t)big64(frame + PHYSICAL_OFFSET_POSITION),
        [BORN_TIME] = (int64_t)big64(frame + BORN_TIMESTAMP_POSITION),
        [STORE_TIME] = (int64_t)big64(frame + STORE_TIMESTAMP_POSITION + born_extra),
        [PREPARED] = (int64_t)big64(before_body + 4),
        [CRC] = big32(frame + BODY_CRC_POSITION),
        [FLAGS] = parts->sys_flag,
        [BODY] = start + parts->body,
        [BODY_LENGTH] = parts->body_length,
        [TOPIC] = start + parts->topic,
        [TOPIC_LENGTH] = parts->topic_length,
        [PROPERTIES] = start + parts->properties,
        [PROPERTIES_LENGTH] = parts->properties_length,
    };
    for (int column = 0; column < LONG_COLUMNS; column++)
        put64(longs, column * frames + row, values[column]);
    put32(shorts, QUEUE_ID * frames + row, (int32_t)big32(frame + QUEUE_ID_POSITION));
    put32(shorts, PRODUCER_FLAG * frames + row, (int32_t)big32(frame + PRODUCER_FLAG_POSITION));
    put32(shorts, RECONSUME_TIMES * frames + row, (int32_t)big32(before_body));
}

/* columns(raw, starts, sizes, longs, shorts, version2) -> (good, any_v6, hosts_alike), `good` frames from
 * the first on: formats/columns.py. The columns are those of the enumerations above. */
static PyObject *columns(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 6))
        return NULL;
    const uint8_t *raw = take(&buffers, given[0], 0, -1);
    const void *starts = raw ? take(&buffers, given[1], 0, -1) : NULL;
    if (!starts)
        return failed(&buffers);
    Py_ssize_t frames = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    const void *sizes = take(&buffers, given[2], 0, frames * 8);
    void *longs = sizes ? take(&buffers, given[3], 1, frames * LONG_COLUMNS * 8) : NULL;
    void *shorts = longs ? take(&buffers, given[4], 1, frames * SHORT_COLUMNS * 4) : NULL;
    uint8_t *version2 = shorts ? take(&buffers, given[5], 1, frames) : NULL;
    if (!version2)
        return failed(&buffers);

    Py_ssize_t row = 0;
    uint32_t all_flags = 0;
    int inside = 1, alike = 1;
    const uint8_t *first = NULL;
    PyThreadState *state = unlock(frames * LONG_COLUMNS * 8);
    for (; row < frames; row++) {
        int64_t start = get64(starts, row), size = get64(sizes, row);
        Parts parts;
        if (!(inside = within(start, size, there)) || !frame_parts(raw + start, size, &parts))
            break;
        const uint8_t *frame = raw + start;
        first = first ? first : frame;
        alike &= !memcmp(frame + BORN_HOST_POSITION, first + BORN_HOST_POSITION, V4_BYTES)
              && !memcmp(frame + STORE_HOST_POSITION, first + STORE_HOST_POSITION, V4_BYTES);
        all_flags |= parts.sys_flag;
        version2[row] = (uint8_t)parts.version2;
        put_columns(frame, start, &parts, longs, shorts, frames, row);
    }
    lock_again(state);
    if (!inside)
        return misplaced(&buffers);
    release(&buffers);
    int any_v6 = (all_flags & (BORN_HOST_V6 | STORE_HOST_V6)) != 0;
    return Py_BuildValue("nii", row, any_v6, alike && !any_v6);
}

/* first_displaced(raw, starts, base) -> the first frame whose PHYSICALOFFSET is not base + its start, or
 * how many there are. */
static PyObject *first_displaced(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 3))
        return NULL;
    int64_t base = PyLong_AsLongLong(given[2]);
    if (PyErr_Occurred())
        return NULL;
    const uint8_t *raw = take(&buffers, given[0], 0, -1);
    const void *starts = raw ? take(&buffers, given[1], 0, -1) : NULL;
    if (!starts)
        return failed(&buffers);
    Py_ssize_t row = 0, frames = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    int inside = 1;
    for (; row < frames; row++) {
        int64_t start = get64(starts, row);
        if (!(inside = within(start, PHYSICAL_OFFSET_POSITION + 8, there))
            || big64(raw + start + PHYSICAL_OFFSET_POSITION) != (uint64_t)base + (uint64_t)start)
            break;
    }
    if (!inside)
        return misplaced(&buffers);
    release(&buffers);
    return PyLong_FromSsize_t(row);
}

/* first_misplaced(window, starts, sizes, physical, queue_offsets) -> the first place of `window` without
 * a frame of its size, log offset and queue offset (of none where none are given), or how many there are:
 * stratamq_dispatcher's frame_reads.py. What a unit says may be anything. */
static PyObject *first_misplaced(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 5))
        return NULL;
    const uint8_t *window = take(&buffers, given[0], 0, -1);
    const void *starts = window ? take(&buffers, given[1], 0, -1) : NULL;
    if (!starts)
        return failed(&buffers);
    Py_ssize_t row = 0, rows = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    const void *sizes = take(&buffers, given[2], 0, rows * 8);
    const void *physical = sizes ? take(&buffers, given[3], 0, rows * 8) : NULL;
    const void *indexes = physical ? take(&buffers, given[4], 0, -1) : NULL;
    if (!indexes)
        return failed(&buffers);
    int named = length_of(&buffers, 4) > 0;
    if (named && length_of(&buffers, 4) != rows * 8)
        return misplaced(&buffers);
    for (; row < rows; row++) {
        int64_t start = get64(starts, row), size = get64(sizes, row);
        if (size < MIN_FRAME_BYTES || !within(start, size, there))
            break;
        const uint8_t *frame = window + start;
        uint32_t magic = big32(frame + 4);
        if ((int32_t)big32(frame) != size || (magic != MAGIC_V1 && magic != MAGIC_V2)
            || (int64_t)big64(frame + PHYSICAL_OFFSET_POSITION) != get64(physical, row)
            || (named && (int64_t)big64(frame + QUEUE_OFFSET_POSITION) != get64(indexes, row)))
            break;
    }
    release(&buffers);
    return PyLong_FromSsize_t(row);
}

/* The tuple of these, whose references it takes; NULL when one of them is. */
static PyObject *tuple_of(PyObject *const *items, Py_ssize_t count)
{
    PyObject *made = PyTuple_New(count);
    int complete = made != NULL;
    for (Py_ssize_t place = 0; place < count; place++) {
        complete &= items[place] != NULL;
        if (made)
            PyTuple_SetItem(made, place, items[place]);
        else
            Py_XDECREF(items[place]);
    }
    if (!complete)
        Py_CLEAR(made);
    return made;
}

/* A frame and its first fields, HEAD in formats/frame_layout.py; not by Py_BuildValue, which
 * reads its format again for each frame. */
static PyObject *with_head(const uint8_t *frame, Py_ssize_t size)
{
    PyObject *const fields[] = {
        PyLong_FromLong((int32_t)big32(frame)),
        PyLong_FromUnsignedLong(big32(frame + 4)),
        PyLong_FromLong((int32_t)big32(frame + BODY_CRC_POSITION)),
        PyLong_FromLong((int32_t)big32(frame + QUEUE_ID_POSITION)),
        PyLong_FromLong((int32_t)big32(frame + PRODUCER_FLAG_POSITION)),
        PyLong_FromLongLong((int64_t)big64(frame + QUEUE_OFFSET_POSITION)),
        PyLong_FromLongLong((int64_t)big64(frame + PHYSICAL_OFFSET_POSITION)),
        PyLong_FromLong((int32_t)big32(frame + SYS_FLAG_POSITION)),
        PyLong_FromLongLong((int64_t)big64(frame + BORN_TIMESTAMP_POSITION)),
    };
    PyObject *const found[] = {
        PyBytes_FromStringAndSize((const char *)frame, size),
        tuple_of(fields, sizeof fields / sizeof *fields),
    };
    return tuple_of(found, 2);
}

/* split(frames, position, most) -> ([(frame, first fields)], end): up to so many from there on, as far
 * as they are frames by magic and length: client/received.py. */
static PyObject *split(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 3))
        return NULL;
    Py_ssize_t position = PyLong_AsSsize_t(given[1]), most = PyLong_AsSsize_t(given[2]);
    if (PyErr_Occurred())
        return NULL;
    const uint8_t *data = take(&buffers, given[0], 0, -1);
    if (!data)
        return failed(&buffers);
    Py_ssize_t there = length_of(&buffers, 0);
    if (position < 0 || position > there)
        return misplaced(&buffers);
    PyObject *found = PyList_New(0);
    for (; found && most > 0 && there - position >= MIN_FRAME_BYTES; most--) {
        int32_t size = (int32_t)big32(data + position);
        uint32_t magic = big32(data + position + 4);
        if ((magic != MAGIC_V1 && magic != MAGIC_V2) || size < MIN_FRAME_BYTES || size > there - position)
            break;
        PyObject *one = with_head(data + position, size);
        if (!one || PyList_Append(found, one) < 0)
            Py_CLEAR(found);
        Py_XDECREF(one);
        position += size;
    }
    release(&buffers);
    return found ? Py_BuildValue("(Nn)", found, position) : NULL;
}

/* plain_body(frame) -> its body, or None where that is compressed or not within it: client/received.py. */
static PyObject *plain_body(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 1))
        return NULL;
    const uint8_t *frame = take(&buffers, given[0], 0, -1);
    if (!frame)
        return failed(&buffers);
    Py_ssize_t size = length_of(&buffers, 0);
    PyObject *found = NULL;
    if (size >= MIN_FRAME_BYTES && !(big32(frame + SYS_FLAG_POSITION) & COMPRESSED)) {
        int64_t body = body_position(big32(frame + SYS_FLAG_POSITION));
        int64_t length = body < size ? (int32_t)big32(frame + body - 4) : -1;
        if (within(body, length, size))
            found = PyBytes_FromStringAndSize((const char *)frame + body, length);
    }
    release(&buffers);
    return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* message_ids(raw, hosts, offsets, digits): 32 hexadecimal digits for each, of eight bytes at `hosts` and
 * of an offset: table/decode.py. */
static PyObject *message_ids(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    static const char hexadecimal[] = "0123456789ABCDEF";
    Buffers buffers = {.count = 0};
    if (!arguments(count, 4))
        return NULL;
    const uint8_t *raw = take(&buffers, given[0], 0, -1);
    const void *hosts = raw ? take(&buffers, given[1], 0, -1) : NULL;
    if (!hosts)
        return failed(&buffers);
    Py_ssize_t rows = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    const void *offsets = take(&buffers, given[2], 0, rows * 8);
    uint8_t *digits = offsets ? take(&buffers, given[3], 1, rows * 32) : NULL;
    if (!digits)
        return failed(&buffers);
    Py_ssize_t row = 0;
    for (; row < rows; row++) {
        int64_t host = get64(hosts, row);
        if (!within(host, V4_BYTES, there))
            break;
        uint8_t bytes[16];
        memcpy(bytes, raw + host, V4_BYTES);
        put_big64(bytes + 8, (uint64_t)get64(offsets, row));
        for (int place = 0; place < 16; place++) {
            *digits++ = (uint8_t)hexadecimal[bytes[place] >> 4];
            *digits++ = (uint8_t)hexadecimal[bytes[place] & 15];
        }
    }
    if (row < rows)
        return misplaced(&buffers);
    release(&buffers);
    Py_RETURN_NONE;
}

/* crc32_of_each(raw, starts, ends, found): formats/checksums.py. */
static PyObject *crc32_of_each(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 4))
        return NULL;
    const uint8_t *raw = take(&buffers, given[0], 0, -1);
    const void *starts = raw ? take(&buffers, given[1], 0, -1) : NULL;
    if (!starts)
        return failed(&buffers);
    Py_ssize_t rows = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    const void *ends = take(&buffers, given[2], 0, rows * 8);
    void *found = ends ? take(&buffers, given[3], 1, rows * 8) : NULL;
    if (!found)
        return failed(&buffers);
    Py_ssize_t row = 0;
    PyThreadState *state = unlock(there);
    for (; row < rows; row++) {
        int64_t start = get64(starts, row), end = get64(ends, row);
        if (start < 0 || end < start || end > there)
            break;
        put64(found, row, crc32_31(raw + start, (size_t)(end - start)));
    }
    lock_again(state);
    if (row < rows)
        return misplaced(&buffers);
    release(&buffers);
    Py_RETURN_NONE;
}

/* first_unverified(raw, starts, sizes, sealed_at, unsure_topic) -> the number of the first frame that
 * is not vouched for, or how many there are: formats/frame_verify.py. */
static PyObject *first_unverified(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 5))
        return NULL;
    int64_t sealed_at = PyLong_AsLongLong(given[3]);
    if (PyErr_Occurred())
        return NULL;
    const uint8_t *raw = take(&buffers, given[0], 0, -1);
    const void *starts = raw ? take(&buffers, given[1], 0, -1) : NULL;
    if (!starts)
        return failed(&buffers);
    Py_ssize_t frames = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    const void *sizes = take(&buffers, given[2], 0, frames * 8);
    const uint8_t *topic = sizes ? take(&buffers, given[4], 0, -1) : NULL;
    if (!topic)
        return failed(&buffers);
    Py_ssize_t row = 0, topic_length = length_of(&buffers, 3);
    int inside = 1;
    PyThreadState *state = unlock(there);
    for (; row < frames; row++) {
        int64_t start = get64(starts, row), size = get64(sizes, row);
        if (!(inside = within(start, size, there))
            || !frame_verified(raw + start, size, start >= sealed_at, topic, topic_length))
            break;
    }
    lock_again(state);
    if (!inside)
        return misplaced(&buffers);
    release(&buffers);
    return PyLong_FromSsize_t(row);
}

static uint32_t hash_bytes(const uint8_t *at, int64_t length)
{
    uint64_t hash = (uint64_t)length * 0x9E3779B97F4A7C15u, word;
    for (; length >= 8; at += 8, length -= 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, at, (size_t)length);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(hash >> 32);
}

/* group(raw, starts, lengths, index, firsts, table) -> how many texts differ, the rows of the first of
 * each in `firsts`; -1: too many fall on one place of `table` (formats/text_groups.py numbers them
 * then). `table` is zeroed, a power of two of entries of 32 bits, more than there are rows. */
static PyObject *group(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 6))
        return NULL;
    const uint8_t *raw = take(&buffers, given[0], 0, -1);
    const void *starts = raw ? take(&buffers, given[1], 0, -1) : NULL;
    if (!starts)
        return failed(&buffers);
    Py_ssize_t rows = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    const void *lengths = take(&buffers, given[2], 0, rows * 8);
    void *index = lengths ? take(&buffers, given[3], 1, rows * 4) : NULL;
    void *firsts = index ? take(&buffers, given[4], 1, rows * 8) : NULL;
    void *table = firsts ? take(&buffers, given[5], 1, -1) : NULL;
    if (!table)
        return failed(&buffers);
    Py_ssize_t entries = length_of(&buffers, 5) / 4;
    if (entries <= rows || entries & (entries - 1) || rows > INT32_MAX)
        return misplaced(&buffers);

    Py_ssize_t row = 0;
    int32_t texts = 0, number = 0;
    int64_t same_start = 0, same_length = -1;
    int probes = 0, inside = 1;
    PyThreadState *state = unlock(rows * 8);
    for (; row < rows; row++) {
        int64_t start = get64(starts, row), length = get64(lengths, row);
        if (!(inside = within(start, length, there)))
            break;
        if (length != same_length || memcmp(raw + start, raw + same_start, (size_t)length)) {
            size_t place = hash_bytes(raw + start, length);
            for (probes = 0; probes < MAX_PROBES; probes++) {
                place &= (size_t)entries - 1;
                number = get32(table, (ptrdiff_t)place) - 1;
                if (number < 0 || number >= texts)
                    break;
                int64_t first = get64(firsts, number);
                same_start = get64(starts, first);
                same_length = get64(lengths, first);
                if (length == same_length && !memcmp(raw + start, raw + same_start, (size_t)length))
                    break;
                place++;
            }
            if (probes == MAX_PROBES)
                break;
            if (number < 0 || number >= texts) {
                number = texts++;
                put32(table, (ptrdiff_t)place, texts);
                put64(firsts, number, row);
            }
            same_start = start;
            same_length = length;
        }
        put32(index, row, number);
    }
    lock_again(state);
    if (!inside)
        return misplaced(&buffers);
    release(&buffers);
    return PyLong_FromLong(row < rows ? -1 : texts);
}

/* gather(raw, starts, lengths, data): the stretches one behind the other; `data` has room for exactly
 * all of them: table/texts.py. */
static PyObject *gather(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 4))
        return NULL;
    const uint8_t *raw = take(&buffers, given[0], 0, -1);
    const void *starts = raw ? take(&buffers, given[1], 0, -1) : NULL;
    if (!starts)
        return failed(&buffers);
    Py_ssize_t rows = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    const void *lengths = take(&buffers, given[2], 0, rows * 8);
    uint8_t *data = lengths ? take(&buffers, given[3], 1, -1) : NULL;
    if (!data)
        return failed(&buffers);
    Py_ssize_t row = 0, room = length_of(&buffers, 3);
    PyThreadState *state = unlock(room);
    for (; row < rows; row++) {
        int64_t start = get64(starts, row), length = get64(lengths, row);
        if (!within(start, length, there) || length > room)
            break;
        memcpy(data, raw + start, (size_t)length);
        data += length;
        room -= length;
    }
    lock_again(state);
    if (row < rows || room)
        return misplaced(&buffers);
    release(&buffers);
    Py_RETURN_NONE;
}

enum { PLAIN, LIGHT, LEFT_OVER };

static const char light_name[] = "INNER_MULTI_DISPATCH";

typedef struct {
    Py_ssize_t count, room;
    void *rows, *hashes;
} Keys;

static int add_key(Keys *keys, Py_ssize_t row, uint32_t prefix, const uint8_t *word, int64_t length)
{
    if (!hash_text(word, length, &prefix))
        return 0;
    if (keys->count < keys->room) {
        put32(keys->rows, keys->count, (int32_t)row);
        put32(keys->hashes, keys->count, absolute_hash(prefix));
    }
    keys->count++;
    return 1;
}

/* One row of `tags_and_keys`. What it has added to `keys` counts only if it is not left over. */
static int row_tags_and_keys(const uint8_t *at, int64_t length, Py_ssize_t row, uint32_t prefix,
                             int64_t *tags_code, Keys *keys)
{
    Item item, tags = {0}, unique = {0}, words = {0};
    int kind = PLAIN;
    for (const uint8_t *end = at + length; next_item(&at, end, &item);) {
        if (is_named(&item, "TAGS", 4))
            tags = item;
        else if (is_named(&item, "UNIQ_KEY", 8))
            unique = item;
        else if (is_named(&item, "KEYS", 4))
            words = item;
        else if (is_named(&item, light_name, sizeof light_name - 1))
            kind = LIGHT;
    }
    uint32_t code = 0;
    if (tags.value && !hash_text(tags.value, tags.value_length, &code))
        return LEFT_OVER;
    *tags_code = (int32_t)code;
    if (unique.value && !add_key(keys, row, prefix, unique.value, unique.value_length))
        return LEFT_OVER;
    if (words.value) {
        const uint8_t *next = words.value, *end = next + words.value_length, *word;
        int64_t word_length;
        while (next_word(&next, end, &word, &word_length))
            if (!add_key(keys, row, prefix, word, word_length))
                return LEFT_OVER;
    }
    return kind;
}

/* tags_and_keys(raw, starts, lengths, topic_index, prefixes, tags_codes, kinds, key_rows, key_hashes)
 * -> the number of keys; if there is no room for so many, call it again with more:
 * formats/dispatch.py. */
static PyObject *tags_and_keys(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 9))
        return NULL;
    const uint8_t *raw = take(&buffers, given[0], 0, -1);
    const void *starts = raw ? take(&buffers, given[1], 0, -1) : NULL;
    if (!starts)
        return failed(&buffers);
    Py_ssize_t rows = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    const void *lengths = take(&buffers, given[2], 0, rows * 8);
    const void *topics = lengths ? take(&buffers, given[3], 0, rows * 4) : NULL;
    const void *prefixes = topics ? take(&buffers, given[4], 0, -1) : NULL;
    void *codes = prefixes ? take(&buffers, given[5], 1, rows * 8) : NULL;
    uint8_t *kinds = codes ? take(&buffers, given[6], 1, rows) : NULL;
    Keys keys = {0};
    keys.rows = kinds ? take(&buffers, given[7], 1, -1) : NULL;
    keys.hashes = keys.rows ? take(&buffers, given[8], 1, length_of(&buffers, 7)) : NULL;
    if (!keys.hashes)
        return failed(&buffers);
    keys.room = length_of(&buffers, 7) / 4;
    Py_ssize_t row = 0, names = length_of(&buffers, 4) / 4;
    PyThreadState *state = unlock(there);
    for (; row < rows; row++) {
        int64_t start = get64(starts, row), length = get64(lengths, row), code = 0;
        int32_t topic = get32(topics, row);
        if (!within(start, length, there) || topic < 0 || topic >= names)
            break;
        Py_ssize_t before = keys.count;
        uint32_t prefix = (uint32_t)get32(prefixes, topic);
        kinds[row] = (uint8_t)row_tags_and_keys(raw + start, length, row, prefix, &code, &keys);
        if (kinds[row] == LEFT_OVER)
            keys.count = before;
        put64(codes, row, code);
    }
    lock_again(state);
    if (row < rows)
        return misplaced(&buffers);
    release(&buffers);
    return PyLong_FromSsize_t(keys.count);
}

/* Stretches of the buffer, as many as there is room for; all are counted. */
typedef struct {
    Py_ssize_t count, room;
    void *starts, *lengths;
} Spans;

static void add_span(Spans *spans, int64_t start, int64_t length)
{
    if (spans->count < spans->room) {
        put64(spans->starts, spans->count, start);
        put64(spans->lengths, spans->count, length);
    }
    spans->count++;
}

/* The items of one text as a map has them: of two with one name the last value, at the place of the
 * first. -1: not decided here. */
static int items_of(const uint8_t *at, int64_t length, Item *items)
{
    int count = 0;
    if (!is_well_formed(at, length))
        return -1;
    Item item;
    for (const uint8_t *end = at + length; next_item(&at, end, &item);) {
        int number = 0;
        while (number < count && !is_named(&items[number], (const char *)item.name, item.name_length))
            number++;
        if (number == MAX_ITEMS)
            return -1;
        items[number] = item;
        count += number == count;
    }
    return count;
}

/* property_spans(raw, starts, lengths, counts, name_starts, name_lengths, value_starts, value_lengths,
 * key_starts, key_lengths) -> (items, words): table/property_columns.py. `counts` has three rows of a
 * 32-bit number a frame: items (-1: left over), words of KEYS, and which item is TAGS (-1: none). */
static PyObject *property_spans(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 10))
        return NULL;
    const uint8_t *raw = take(&buffers, given[0], 0, -1);
    const void *starts = raw ? take(&buffers, given[1], 0, -1) : NULL;
    if (!starts)
        return failed(&buffers);
    Py_ssize_t rows = length_of(&buffers, 1) / 8, there = length_of(&buffers, 0);
    const void *lengths = take(&buffers, given[2], 0, rows * 8);
    void *counts = lengths ? take(&buffers, given[3], 1, rows * 3 * 4) : NULL;
    Spans names = {0}, values = {0}, words = {0};
    names.starts = counts ? take(&buffers, given[4], 1, -1) : NULL;
    Py_ssize_t room = names.starts ? length_of(&buffers, 4) : 0;
    names.lengths = names.starts ? take(&buffers, given[5], 1, room) : NULL;
    values.starts = names.lengths ? take(&buffers, given[6], 1, room) : NULL;
    values.lengths = values.starts ? take(&buffers, given[7], 1, room) : NULL;
    words.starts = values.lengths ? take(&buffers, given[8], 1, -1) : NULL;
    words.lengths = words.starts ? take(&buffers, given[9], 1, length_of(&buffers, 8)) : NULL;
    if (!words.lengths)
        return failed(&buffers);
    names.room = values.room = room / 8;
    words.room = length_of(&buffers, 8) / 8;

    Py_ssize_t row = 0;
    PyThreadState *state = unlock(there);
    for (; row < rows; row++) {
        int64_t start = get64(starts, row), length = get64(lengths, row);
        if (!within(start, length, there))
            break;
        Item items[MAX_ITEMS];
        int found = items_of(raw + start, length, items), tags = -1;
        Py_ssize_t words_before = words.count, items_before = names.count;
        for (int number = 0; number < found; number++) {
            const Item *item = &items[number];
            add_span(&names, item->name - raw, item->name_length);
            add_span(&values, item->value - raw, item->value_length);
            if (is_named(item, "TAGS", 4))
                tags = (int)(items_before + number);
            if (is_named(item, "KEYS", 4)) {
                const uint8_t *next = item->value, *end = next + item->value_length, *word;
                int64_t word_length;
                while (next_word(&next, end, &word, &word_length))
                    add_span(&words, word - raw, word_length);
            }
        }
        put32(counts, row, found);
        put32(counts, row + rows, (int32_t)(words.count - words_before));
        put32(counts, row + rows * 2, tags);
    }
    lock_again(state);
    if (row < rows)
        return misplaced(&buffers);
    release(&buffers);
    return Py_BuildValue("nn", names.count, words.count);
}

/* The numbers of a pass: how many frames each run and each batch has, and what they have in common. */
typedef struct {
    uint8_t *raw;
    Py_ssize_t there, frames, runs, batches;
    const void *lengths, *run_counts, *batch_counts;
} Pass;

/* The first four arguments of a pass's functions: raw, lengths (of 32 bits), run_counts, batch_counts. */
static int take_pass(Buffers *buffers, PyObject *const *given, int writable, Pass *pass)
{
    pass->raw = take(buffers, given[0], writable, -1);
    pass->lengths = pass->raw ? take(buffers, given[1], 0, -1) : NULL;
    pass->run_counts = pass->lengths ? take(buffers, given[2], 0, -1) : NULL;
    pass->batch_counts = pass->run_counts ? take(buffers, given[3], 0, -1) : NULL;
    if (!pass->batch_counts)
        return 0;
    pass->there = length_of(buffers, 0);
    pass->frames = length_of(buffers, 1) / 4;
    pass->runs = length_of(buffers, 2) / 8;
    pass->batches = length_of(buffers, 3) / 8;
    return 1;
}

/* Where a walk over the frames of a pass is. */
typedef struct {
    Py_ssize_t row, run, batch;
    int64_t left_in_run, left_in_batch, start, size;
} Walk;

/* Go to the next frame; 0 behind the last, or where the numbers do not fit each other. */
static int next_frame(const Pass *pass, Walk *walk)
{
    walk->row++;
    if (walk->row >= pass->frames)
        return 0;
    while (walk->left_in_run <= 0) {
        if (++walk->run >= pass->runs)
            return 0;
        walk->left_in_run = get64(pass->run_counts, walk->run);
    }
    while (walk->left_in_batch <= 0) {
        if (++walk->batch >= pass->batches)
            return 0;
        walk->left_in_batch = get64(pass->batch_counts, walk->batch);
    }
    walk->left_in_run--;
    walk->left_in_batch--;
    walk->start += walk->size;
    walk->size = (uint32_t)get32(pass->lengths, walk->row);
    return within(walk->start, walk->size, pass->there);
}

static const Walk before_all = {-1, -1, -1, 0, 0, 0, 0};

/* plain(raw, lengths, run_counts, batch_counts, topics, topic_ends, heads, forbidden_flags, max_body,
 * sealed, own) -> how many frames from the first on are plain: stratamq_commitlog's write/few_frames.py.
 * `heads`: 16 bytes for each batch, or none when no batch is numbered. */
static PyObject *plain(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    Pass pass;
    if (!arguments(count, 11))
        return NULL;
    Rules rules = {(uint32_t)PyLong_AsUnsignedLongMask(given[7]), PyLong_AsLongLong(given[8]),
                   PyObject_IsTrue(given[9]), PyObject_IsTrue(given[10])};
    if (PyErr_Occurred())
        return NULL;
    if (!take_pass(&buffers, given, 0, &pass))
        return failed(&buffers);
    const uint8_t *topics = take(&buffers, given[4], 0, -1);
    const void *topic_ends = topics ? take(&buffers, given[5], 0, pass.runs * 8) : NULL;
    const uint8_t *heads = topic_ends ? take(&buffers, given[6], 0, -1) : NULL;
    if (!heads)
        return failed(&buffers);
    Py_ssize_t topics_there = length_of(&buffers, 4), heads_there = length_of(&buffers, 6);
    int numbered = heads_there > 0, inside = !numbered || heads_there == pass.batches * ITEM_HEAD_BYTES;
    Walk walk = before_all;
    PyThreadState *state = unlock(pass.there);
    while (inside && next_frame(&pass, &walk)) {
        int64_t topic = walk.run ? get64(topic_ends, walk.run - 1) : 0;
        int64_t topic_length = get64(topic_ends, walk.run) - topic;
        const uint8_t *head = numbered ? heads + walk.batch * ITEM_HEAD_BYTES : NULL;
        if (!(inside = within(topic, topic_length, topics_there))
            || !is_plain(pass.raw + walk.start, walk.size, topics + topic, topic_length, head, &rules))
            break;
    }
    lock_again(state);
    if (!inside)
        return misplaced(&buffers);
    release(&buffers);
    return PyLong_FromSsize_t(walk.row);
}

/* fill(raw, lengths, run_counts, batch_counts, queue_ids, queue_offsets, sequences, start, stamp,
 * sealed): write the broker's fields into frames that are plain. One queue id and first queue offset
 * for each run, one first sequence for each batch, or none. */
static PyObject *fill(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    Pass pass;
    if (!arguments(count, 10))
        return NULL;
    int64_t log_start = PyLong_AsLongLong(given[7]);
    int sealed = PyObject_IsTrue(given[9]);
    if (PyErr_Occurred())
        return NULL;
    if (!take_pass(&buffers, given, 1, &pass))
        return failed(&buffers);
    const void *queue_ids = take(&buffers, given[4], 0, pass.runs * 8);
    const void *offsets = queue_ids ? take(&buffers, given[5], 0, pass.runs * 8) : NULL;
    const void *sequences = offsets ? take(&buffers, given[6], 0, -1) : NULL;
    const uint8_t *stamp = sequences ? take(&buffers, given[8], 0, STAMP_BYTES) : NULL;
    if (!stamp)
        return failed(&buffers);
    int numbered = length_of(&buffers, 6) > 0;
    int inside = !numbered || length_of(&buffers, 6) == pass.batches * 8;
    Walk walk = before_all;
    PyThreadState *state = unlock(pass.there);
    while (inside && next_frame(&pass, &walk)) {
        if (!(inside = walk.size >= MIN_FRAME_BYTES))
            break;
        uint8_t *frame = pass.raw + walk.start, *end = frame + walk.size;
        int64_t in_run = get64(pass.run_counts, walk.run) - walk.left_in_run - 1;
        int64_t in_batch = get64(pass.batch_counts, walk.batch) - walk.left_in_batch - 1;
        put_big32(frame + QUEUE_ID_POSITION, (uint32_t)get64(queue_ids, walk.run));
        put_big64(frame + QUEUE_OFFSET_POSITION, (uint64_t)get64(offsets, walk.run) + (uint64_t)in_run);
        put_big64(frame + PHYSICAL_OFFSET_POSITION, (uint64_t)log_start + (uint64_t)walk.start);
        memcpy(frame + STORE_TIMESTAMP_POSITION, stamp, STAMP_BYTES);
        if (numbered)
            put_sequence(end - item_before_end(sealed) + ITEM_HEAD_BYTES,
                         (uint64_t)get64(sequences, walk.batch) + (uint64_t)in_batch);
        if (sealed)
            put_record_checksum(frame, walk.size);
    }
    lock_again(state);
    if (!inside || walk.row < pass.frames)
        return misplaced(&buffers);
    release(&buffers);
    Py_RETURN_NONE;
}

/* One message of `rows`: body and properties, which are bytes. 0: something else. */
static int take_row(PyObject *rows, Py_ssize_t number, Row *row)
{
    PyObject *pair = PyList_GetItem(rows, number);
    if (!pair || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
        return 0;
    PyObject *body = PyTuple_GetItem(pair, 0), *properties = PyTuple_GetItem(pair, 1);
    if (!PyBytes_Check(body) || !PyBytes_Check(properties))
        return 0;
    *row = (Row){(const uint8_t *)PyBytes_AsString(body), (const uint8_t *)PyBytes_AsString(properties),
                 PyBytes_Size(body), PyBytes_Size(properties)};
    return 1;
}

/* encode(rows, magic, middle, topic, ending, sizes) -> the frames of a list of messages, one behind the
 * other; None where formats/batch_frames.py must look itself: something is too long, or no bytes.
 * `topic`: with its length in front. No Python runs meanwhile, so that the rows stay as they are. */
static PyObject *encode(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Buffers buffers = {.count = 0};
    if (!arguments(count, 6))
        return NULL;
    PyObject *rows = given[0], *frames = NULL;
    uint32_t magic = (uint32_t)PyLong_AsUnsignedLongMask(given[1]);
    Py_ssize_t many = PyList_Size(rows);
    if (PyErr_Occurred())
        return NULL;
    Shape shape = {magic, take(&buffers, given[2], 0, -1), NULL, NULL, 0, 0, 0};
    shape.topic = shape.middle ? take(&buffers, given[3], 0, -1) : NULL;
    shape.ending = shape.topic ? take(&buffers, given[4], 0, -1) : NULL;
    void *sizes = shape.ending ? take(&buffers, given[5], 1, many * 4) : NULL;
    if (!sizes)
        return failed(&buffers);
    shape.middle_length = length_of(&buffers, 0);
    shape.topic_length = length_of(&buffers, 1);
    shape.ending_length = length_of(&buffers, 2);
    int64_t total = 0;
    Row row;
    for (Py_ssize_t number = 0; number < many; number++) {
        int64_t size = take_row(rows, number, &row) ? size_of_frame(&shape, &row) : 0;
        if (!size) {
            release(&buffers);
            Py_RETURN_NONE;
        }
        put32(sizes, number, (int32_t)size);
        total += size;
    }
    if (total / MOST_MEAN_BYTES > many) {
        release(&buffers);
        Py_RETURN_NONE;
    }
    frames = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    uint8_t *at = frames ? (uint8_t *)PyBytes_AsString(frames) : NULL;
    for (Py_ssize_t number = 0; at && number < many; number++) {
        take_row(rows, number, &row);
        at = put_frame(at, get32(sizes, number), &shape, &row);
    }
    release(&buffers);
    return frames;
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef functions[] = {
    FUNCTION(scan),          FUNCTION(columns),        FUNCTION(crc32_of_each),
    FUNCTION(first_unverified), FUNCTION(group),       FUNCTION(gather),
    FUNCTION(tags_and_keys), FUNCTION(property_spans), FUNCTION(plain), FUNCTION(fill),
    FUNCTION(first_displaced), FUNCTION(message_ids), FUNCTION(first_misplaced),
    FUNCTION(encode),        FUNCTION(split),          FUNCTION(plain_body),
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    crc32_prepare();
    return PyModule_AddIntConstant(module, "VERSION", KERNEL_VERSION);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "stratamq._kernel", NULL, 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    return PyModuleDef_Init(&definition);
}
