#include "base/text/wire.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch {

static_assert(std::endian::native == std::endian::little, "the wire encoding is little-endian");

namespace {

template <typename Integer>
void append(std::string& bytes, Integer value) {
    char raw[sizeof(Integer)];
    std::memcpy(raw, &value, sizeof value);
    bytes.append(raw, sizeof value);
}

template <typename Integer>
Integer load(std::string_view raw) {
    Integer value;
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
}

}  // namespace

WireWriter& WireWriter::u8(uint8_t value) {
    append(bytes_, value);
    return *this;
}

WireWriter& WireWriter::u32(uint32_t value) {
    append(bytes_, value);
    return *this;
}

WireWriter& WireWriter::u64(uint64_t value) {
    append(bytes_, value);
    return *this;
}

WireWriter& WireWriter::string(std::string_view text) {
    DSL_CHECK(text.size() <= UINT32_MAX, "a string of {} bytes is too long for the protocol",
              text.size());
    u32(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
    return *this;
}

std::string_view WireReader::take(size_t length) {
    if (length > bytes_.size())
        fail(ExitCode::kInternal,
             "{}: the message is {} bytes too short; the other side may be another version of "
             "dslaunch",
             what_, length - bytes_.size());
    const std::string_view taken = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return taken;
}

uint8_t WireReader::u8() {
    return load<uint8_t>(take(1));
}
uint32_t WireReader::u32() {
    return load<uint32_t>(take(4));
}
uint64_t WireReader::u64() {
    return load<uint64_t>(take(8));
}
std::string WireReader::string() {
    return std::string(take(u32()));
}

}  // namespace dslaunch
