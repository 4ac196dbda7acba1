/*
 * A FIDO security key made of software, for tests: preloaded into OpenSSH's ssh-sk-helper it is the only device that
 * libfido2 finds. Everything of libfido2 stays in use, from its client to its CBOR and its frames; only the bytes that
 * would go to a USB device come here. It speaks CTAP 2.0: CTAPHID_INIT, getInfo, makeCredential, getAssertion, with
 * ES256 and EdDSA.
 *
 * It never protects a key: the credential's id holds the private key in the clear, so the device has no state. It is
 * always touched, and verifies its user by itself whenever that is asked of it. Two variables make it say something
 * else in an assertion: TOKEN_FLAGS is the byte of flags, TOKEN_COUNTER the signature counter.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fido.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME = 64, FIRST_HEADER = 7, NEXT_HEADER = 5, MAX_MESSAGE = 1200, MAX_DEPTH = 4 };
enum { HID_INIT = 0x86, HID_CBOR = 0x90, HID_CANCEL = 0x91, HID_ERROR = 0xbf };
enum { MAKE_CREDENTIAL = 1, GET_ASSERTION = 2, GET_INFO = 4 };
enum { OK = 0, INVALID_COMMAND = 0x01, INVALID_CBOR = 0x12, UNSUPPORTED_ALGORITHM = 0x26, NO_CREDENTIALS = 0x2e };
enum { PRESENT = 0x01, VERIFIED = 0x04, ATTESTED = 0x40, EXTENDED = 0x80 };
enum { ES256 = -7, EDDSA = -8 };
enum { UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE };
enum { SIMPLE_FALSE = 20, SIMPLE_TRUE = 21 };

/* What is still to be read of a request. `bad` stays set, and nothing is read any more. */
struct reader {
    const uint8_t *at, *end;
    bool bad;
};

/* An answer that grows. */
struct writer {
    uint8_t data[MAX_MESSAGE];
    size_t len;
};

/* ---- CBOR, read ---- */

static uint64_t read_head(struct reader *r, int *major)
{
    *major = -1;
    if (r->bad || r->at == r->end) {
        r->bad = true;
        return 0;
    }
    uint8_t first = *r->at++;
    uint64_t value = first & 31;
    if (value >= 24) {
        size_t len = (size_t)1 << (value - 24);
        if (value > 27 || (size_t)(r->end - r->at) < len) {
            r->bad = true;
            return 0;
        }
        for (value = 0; len > 0; len--)
            value = value << 8 | *r->at++;
    }
    *major = first >> 5;
    return value;
}

static const uint8_t *read_string(struct reader *r, int wanted, size_t *len)
{
    int major;
    uint64_t n = read_head(r, &major);
    if (r->bad || major != wanted || n > (uint64_t)(r->end - r->at)) {
        r->bad = true;
        *len = 0;
        return r->end;
    }
    const uint8_t *string = r->at;
    r->at += n;
    *len = n;
    return string;
}

static void skip(struct reader *r, int depth)
{
    int major;
    uint64_t n = read_head(r, &major);
    if (depth == MAX_DEPTH)
        r->bad = true;
    if (major == BYTES || major == TEXT) {
        if (n > (uint64_t)(r->end - r->at))
            r->bad = true;
        else
            r->at += n;
    }
    if (major == MAP)
        n *= 2;
    if (major == ARRAY || major == MAP)
        while (n-- > 0 && !r->bad)
            skip(r, depth + 1);
}

/* Finds a map's value, by its name or, without one, by its number. */
static bool find(struct reader map, const char *name, uint64_t number, struct reader *value)
{
    int major;
    uint64_t n = read_head(&map, &major);
    if (major != MAP)
        return false;
    for (; n > 0 && !map.bad; n--) {
        struct reader key = map;
        size_t len = 0;
        skip(&map, 0);
        *value = map;
        if (name != NULL) {
            const uint8_t *text = read_string(&key, TEXT, &len);
            if (!key.bad && len == strlen(name) && memcmp(text, name, len) == 0)
                return !map.bad;
        } else if (read_head(&key, &major) == number && major == UNSIGNED) {
            return !map.bad;
        }
        skip(&map, 0);
    }
    return false;
}

/* Whether a request's option (a map in its field `field`) is there and has this value. */
static bool has_option(struct reader request, uint64_t field, const char *name, uint64_t wanted)
{
    struct reader options, value;
    int major;
    return find(request, NULL, field, &options) && find(options, name, 0, &value)
        && read_head(&value, &major) == wanted && major == SIMPLE;
}

/* ---- CBOR, written ---- */

static void put(struct writer *w, const void *data, size_t len)
{
    if (len > sizeof w->data - w->len)
        abort();
    memcpy(w->data + w->len, data, len);
    w->len += len;
}

static void put_byte(struct writer *w, unsigned byte)
{
    put(w, &(uint8_t){byte}, 1);
}

static void put_head(struct writer *w, int major, uint64_t n)
{
    if (n < 24) {
        put_byte(w, major << 5 | n);
    } else if (n < 256) {
        put_byte(w, major << 5 | 24);
        put_byte(w, n);
    } else {
        put_byte(w, major << 5 | 25);
        put_byte(w, n >> 8);
        put_byte(w, n & 255);
    }
}

static void put_int(struct writer *w, int n)
{
    put_head(w, n < 0 ? NEGATIVE : UNSIGNED, n < 0 ? -1 - n : n);
}

static void put_bytes(struct writer *w, const void *data, size_t len)
{
    put_head(w, BYTES, len);
    put(w, data, len);
}

static void put_text(struct writer *w, const char *text)
{
    put_head(w, TEXT, strlen(text));
    put(w, text, strlen(text));
}

static void put_true(struct writer *w, const char *name)
{
    put_text(w, name);
    put_head(w, SIMPLE, SIMPLE_TRUE);
}

/* ---- keys ---- */

static EVP_PKEY *new_key(int algorithm)
{
    EVP_PKEY *key = algorithm == ES256 ? EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256")
                                       : EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    return key != NULL ? key : (abort(), NULL);
}

/* A credential's id: the digest of the application that it is for, then the private key. */
static void put_credential_id(struct writer *w, const uint8_t *application, EVP_PKEY *key)
{
    uint8_t *der = NULL;
    int len = i2d_PrivateKey(key, &der);
    if (len <= 0)
        abort();
    put(w, application, SHA256_DIGEST_LENGTH);
    put(w, der, len);
    OPENSSL_free(der);
}

/* The key of a credential's id, when it is this application's. */
static EVP_PKEY *key_of(const uint8_t *id, size_t len, const uint8_t *application)
{
    if (len <= SHA256_DIGEST_LENGTH || memcmp(id, application, SHA256_DIGEST_LENGTH) != 0)
        return NULL;
    const uint8_t *der = id + SHA256_DIGEST_LENGTH;
    return d2i_AutoPrivateKey(NULL, &der, (long)(len - SHA256_DIGEST_LENGTH));
}

/* The public key as COSE writes it (RFC 9053, section 7). */
static void put_cose_key(struct writer *w, int algorithm, EVP_PKEY *key)
{
    bool ec = algorithm == ES256;
    uint8_t public[65]; /* of P-256 a 4, x and y */
    size_t len = sizeof public;
    if (ec ? EVP_PKEY_get_octet_string_param(key, "pub", public, len, &len) != 1 || len != 65
           : EVP_PKEY_get_raw_public_key(key, public, &len) != 1 || len != 32)
        abort();
    put_head(w, MAP, ec ? 5 : 4);
    put_int(w, 1), put_int(w, ec ? 2 : 1);  /* type: EC2, OKP */
    put_int(w, 3), put_int(w, algorithm);
    put_int(w, -1), put_int(w, ec ? 1 : 6); /* curve: P-256, Ed25519 */
    put_int(w, -2), put_bytes(w, ec ? public + 1 : public, 32);
    if (ec)
        put_int(w, -3), put_bytes(w, public + 33, 32);
}

/* Signs what authenticators sign: their data, then the digest of the client's. */
static void put_signature(struct writer *w, EVP_PKEY *key, const struct writer *data, const uint8_t *digest)
{
    struct writer signed_data = *data;
    uint8_t signature[128];
    size_t len = sizeof signature;
    put(&signed_data, digest, SHA256_DIGEST_LENGTH);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const EVP_MD *hash = EVP_PKEY_is_a(key, "EC") ? EVP_sha256() : NULL;
    if (EVP_DigestSignInit(context, NULL, hash, NULL, key) != 1
        || EVP_DigestSign(context, signature, &len, signed_data.data, signed_data.len) != 1)
        abort();
    EVP_MD_CTX_free(context);
    put_bytes(w, signature, len);
}

/* ---- commands ---- */

static unsigned number_of(const char *variable, unsigned otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? (unsigned)strtoul(text, NULL, 0) : otherwise;
}

/* The head of an authenticator's data. */
static void put_data(struct writer *w, const uint8_t *application, unsigned flags, unsigned counter)
{
    put(w, application, SHA256_DIGEST_LENGTH);
    put_byte(w, flags);
    for (int shift = 24; shift >= 0; shift -= 8)
        put_byte(w, counter >> shift & 255);
}

static int get_info(struct writer *answer)
{
    put_head(answer, MAP, 5);
    put_int(answer, 1), put_head(answer, ARRAY, 1), put_text(answer, "FIDO_2_0");
    put_int(answer, 2), put_head(answer, ARRAY, 1), put_text(answer, "credProtect");
    put_int(answer, 3), put_bytes(answer, "fleetgate tests.", 16);
    put_int(answer, 4), put_head(answer, MAP, 2), put_true(answer, "up"), put_true(answer, "uv");
    put_int(answer, 5), put_int(answer, MAX_MESSAGE);
    return OK;
}

/* The first algorithm of a request's list that is known here, or 0. */
static int algorithm_of(struct reader list)
{
    int major;
    uint64_t n = read_head(&list, &major);
    for (; major == ARRAY && n > 0 && !list.bad; n--) {
        struct reader value;
        int kind;
        if (find(list, "alg", 0, &value)) {
            uint64_t number = read_head(&value, &kind);
            if (kind == NEGATIVE && (number == -1 - ES256 || number == -1 - EDDSA))
                return -1 - (int)number;
        }
        skip(&list, 0);
    }
    return 0;
}

/* Its answer is attested by the new key itself. */
static int make_credential(struct reader request, struct writer *answer)
{
    struct reader client, party, name, list, extensions, protection;
    size_t client_len, name_len;
    if (!find(request, NULL, 1, &client) || !find(request, NULL, 2, &party) || !find(party, "id", 0, &name)
        || !find(request, NULL, 4, &list))
        return INVALID_CBOR;
    const uint8_t *client_digest = read_string(&client, BYTES, &client_len);
    const uint8_t *application = read_string(&name, TEXT, &name_len);
    if (client.bad || name.bad || client_len != SHA256_DIGEST_LENGTH)
        return INVALID_CBOR;
    int algorithm = algorithm_of(list);
    if (algorithm == 0)
        return UNSUPPORTED_ALGORITHM;

    bool protects = find(request, NULL, 6, &extensions) && find(extensions, "credProtect", 0, &protection);
    bool verified = has_option(request, 7, "uv", SIMPLE_TRUE);
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256(application, name_len, digest);
    EVP_PKEY *key = new_key(algorithm);
    struct writer id = {.len = 0}, data = {.len = 0};
    put_credential_id(&id, digest, key);
    put_data(&data, digest, PRESENT | ATTESTED | (verified ? VERIFIED : 0) | (protects ? EXTENDED : 0), 0);
    put(&data, "fleetgate tests.", 16);
    put_byte(&data, id.len >> 8);
    put_byte(&data, id.len & 255);
    put(&data, id.data, id.len);
    put_cose_key(&data, algorithm, key);
    if (protects) {
        int major;
        put_head(&data, MAP, 1);
        put_text(&data, "credProtect");
        put_int(&data, (int)(read_head(&protection, &major) & 3));
    }

    put_head(answer, MAP, 3);
    put_int(answer, 1), put_text(answer, "packed");
    put_int(answer, 2), put_bytes(answer, data.data, data.len);
    put_int(answer, 3), put_head(answer, MAP, 2);
    put_text(answer, "alg"), put_int(answer, algorithm);
    put_text(answer, "sig"), put_signature(answer, key, &data, client_digest);
    EVP_PKEY_free(key);
    return OK;
}

static int get_assertion(struct reader request, struct writer *answer)
{
    struct reader client, name, list, value;
    size_t client_len, name_len, id_len = 0;
    int major;
    if (!find(request, NULL, 1, &name) || !find(request, NULL, 2, &client) || !find(request, NULL, 3, &list))
        return INVALID_CBOR;
    const uint8_t *application = read_string(&name, TEXT, &name_len);
    const uint8_t *client_digest = read_string(&client, BYTES, &client_len);
    uint64_t n = read_head(&list, &major);
    if (client.bad || name.bad || client_len != SHA256_DIGEST_LENGTH || major != ARRAY)
        return INVALID_CBOR;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256(application, name_len, digest);
    const uint8_t *id = NULL;
    EVP_PKEY *key = NULL;
    for (; n > 0 && key == NULL && !list.bad; n--) {
        if (find(list, "id", 0, &value)) {
            id = read_string(&value, BYTES, &id_len);
            key = key_of(id, id_len, digest);
        }
        skip(&list, 0);
    }
    if (key == NULL)
        return NO_CREDENTIALS;

    unsigned flags = has_option(request, 5, "up", SIMPLE_FALSE) ? 0 : PRESENT;
    flags |= has_option(request, 5, "uv", SIMPLE_TRUE) ? VERIFIED : 0;
    flags = number_of("TOKEN_FLAGS", flags);
    struct writer data = {.len = 0};
    put_data(&data, digest, flags, number_of("TOKEN_COUNTER", 1));
    if (flags & EXTENDED)
        put_head(&data, MAP, 0);

    put_head(answer, MAP, 3);
    put_int(answer, 1), put_head(answer, MAP, 2);
    put_text(answer, "id"), put_bytes(answer, id, id_len);
    put_text(answer, "type"), put_text(answer, "public-key");
    put_int(answer, 2), put_bytes(answer, data.data, data.len);
    put_int(answer, 3), put_signature(answer, key, &data, client_digest);
    EVP_PKEY_free(key);
    return OK;
}

/* ---- frames (CTAP 2.0, section 8.1) ---- */

/* The one device: a message that comes in, or an answer that goes out. */
static struct {
    uint8_t channel[4], command, sequence;
    uint8_t message[MAX_MESSAGE];
    size_t len, wanted;
    struct writer answer;
    size_t sent;
} device;

static void answer_message(void)
{
    struct writer *answer = &device.answer;
    answer->len = device.sent = device.sequence = 0;
    if (device.command == HID_INIT && device.wanted == 8) {
        put(answer, device.message, 8);
        put(answer, "\0\0\0\1" "\2\0\0\0" "\x0c", 9); /* a channel; versions; CBOR, and nothing of U2F */
    } else if (device.command == HID_CBOR && device.wanted > 0) {
        struct reader request = {device.message + 1, device.message + device.wanted, false};
        int status = INVALID_COMMAND;
        put_byte(answer, OK);
        switch (device.message[0]) {
        case GET_INFO: status = get_info(answer); break;
        case MAKE_CREDENTIAL: status = make_credential(request, answer); break;
        case GET_ASSERTION: status = get_assertion(request, answer); break;
        }
        answer->data[0] = status;
        if (status != OK)
            answer->len = 1;
    } else if (device.command != HID_CANCEL) {
        device.command = HID_ERROR;
        put_byte(answer, INVALID_COMMAND);
    }
}

static void *token_open(const char *path)
{
    (void)path;
    memset(&device, 0, sizeof device);
    return &device;
}

static void token_close(void *handle)
{
    (void)handle;
}

/* Takes a frame; a byte of 0 stands before it, the number of the HID report. */
static int token_write(void *handle, const unsigned char *report, size_t len)
{
    (void)handle;
    if (len != FRAME + 1)
        return -1;
    const uint8_t *frame = report + 1;
    size_t header = NEXT_HEADER;
    if (frame[4] & 0x80) {
        header = FIRST_HEADER;
        memcpy(device.channel, frame, 4);
        device.command = frame[4];
        device.wanted = (size_t)frame[5] << 8 | frame[6];
        device.len = device.sequence = 0;
        if (device.wanted > MAX_MESSAGE)
            return -1;
    } else if (memcmp(device.channel, frame, 4) != 0 || frame[4] != device.sequence++) {
        return -1;
    }
    size_t rest = device.wanted - device.len, room = FRAME - header;
    size_t more = rest < room ? rest : room;
    memcpy(device.message + device.len, frame + header, more);
    device.len += more;
    if (device.len == device.wanted)
        answer_message();
    return (int)len;
}

static int token_read(void *handle, unsigned char *frame, size_t len, int milliseconds)
{
    (void)handle, (void)milliseconds;
    struct writer *answer = &device.answer;
    if (len != FRAME || device.sent >= answer->len)
        return -1;
    memset(frame, 0, FRAME);
    memcpy(frame, device.channel, 4);
    size_t header = NEXT_HEADER;
    if (device.sent == 0) {
        header = FIRST_HEADER;
        frame[4] = device.command;
        frame[5] = answer->len >> 8;
        frame[6] = answer->len & 255;
    } else {
        frame[4] = device.sequence++;
    }
    size_t rest = answer->len - device.sent, room = FRAME - header;
    size_t more = rest < room ? rest : room;
    memcpy(frame + header, answer->data + device.sent, more);
    device.sent += more;
    return FRAME;
}

static const fido_dev_io_t IO = {token_open, token_close, token_read, token_write};

/* ---- what stands in place of libfido2's own ---- */

int fido_dev_info_manifest(fido_dev_info_t *list, size_t most, size_t *found)
{
    *found = most > 0;
    return most > 0 ? fido_dev_info_set(list, 0, "software", "fleetgate", "token", &IO, NULL) : FIDO_OK;
}

int fido_dev_open(fido_dev_t *dev, const char *path)
{
    int (*real)(fido_dev_t *, const char *) = (int (*)(fido_dev_t *, const char *))dlsym(RTLD_NEXT, "fido_dev_open");
    int result = fido_dev_set_io_functions(dev, &IO);
    return result == FIDO_OK ? real(dev, path) : result;
}
