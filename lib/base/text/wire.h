// A plain binary encoding for messages in pipes between launcher, agent and worker: little-endian
// integers and length-prefixed strings that may contain any bytes. Reading checks every length and
// never allocates more than the bytes that are present.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch {

// A writer that appends values in binary form to a string. Each function returns *this.
class WireWriter {
  public:
    WireWriter& u8(uint8_t value);
    WireWriter& u32(uint32_t value);
    WireWriter& u64(uint64_t value);
    WireWriter& i64(int64_t value) { return u64(static_cast<uint64_t>(value)); }
    // Appends the length of TEXT, then TEXT. REQUIRES: text.size() < 2^32.
    WireWriter& string(std::string_view text);

    [[nodiscard]] const std::string& bytes() const { return bytes_; }

  private:
    std::string bytes_;
};

// A reader of the values that a WireWriter wrote. Throws Error{kInternal} with WHAT in the message
// if bytes are missing.
class WireReader {
  public:
    // BYTES must outlive the reader.
    WireReader(std::string_view bytes, std::string_view what) : bytes_(bytes), what_(what) {}

    // Read the next value; done() returns true if no bytes are left.
    [[nodiscard]] uint8_t u8();
    [[nodiscard]] uint32_t u32();
    [[nodiscard]] uint64_t u64();
    [[nodiscard]] int64_t i64() { return static_cast<int64_t>(u64()); }
    [[nodiscard]] std::string string();
    [[nodiscard]] bool done() const { return bytes_.empty(); }

  private:
    std::string_view take(size_t length);

    std::string_view bytes_;
    std::string_view what_;
};

}  // namespace dslaunch
