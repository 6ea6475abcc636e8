// One description of a message serves both directions: fields(visit, message) names its members in
// order, FieldWriter and FieldReader visit them. For the .cpp files that define messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/wire.h"

namespace dslaunch {

class FieldWriter {
  public:
    void operator()(const std::string& text) { wire_.string(text); }
    void operator()(int64_t number) { wire_.i64(number); }
    void operator()(int number) { wire_.i64(number); }
    void operator()(bool flag) { wire_.u8(flag ? 1 : 0); }
    template <typename Item>
    void operator()(const std::vector<Item>& items) {
        wire_.u32(static_cast<uint32_t>(items.size()));
        for (const Item& item : items) {
            if constexpr (std::is_class_v<Item> && !std::is_same_v<Item, std::string>) {
                fields(*this, item);
            } else {
                (*this)(item);
            }
        }
    }
    [[nodiscard]] const std::string& bytes() const { return wire_.bytes(); }

  private:
    WireWriter wire_;
};

class FieldReader {
  public:
    // BYTES and WHAT must outlive the reader.
    FieldReader(std::string_view bytes, std::string_view what) : wire_(bytes, what) {}

    void operator()(std::string& text) { text = wire_.string(); }
    void operator()(int64_t& number) { number = wire_.i64(); }
    void operator()(int& number) { number = static_cast<int>(wire_.i64()); }
    void operator()(bool& flag) { flag = wire_.u8() != 0; }
    // Items are read one by one: a count that lies runs out of bytes before it runs out of memory.
    template <typename Item>
    void operator()(std::vector<Item>& items) {
        const uint32_t count = wire_.u32();
        items.clear();
        for (uint32_t i = 0; i < count; ++i) {
            items.emplace_back();
            if constexpr (std::is_class_v<Item> && !std::is_same_v<Item, std::string>) {
                fields(*this, items.back());
            } else {
                (*this)(items.back());
            }
        }
    }
    [[nodiscard]] bool done() const { return wire_.done(); }

  private:
    WireReader wire_;
};

template <typename Message>
[[nodiscard]] std::string write_fields(const Message& message) {
    FieldWriter writer;
    fields(writer, message);
    return writer.bytes();
}

// Throws Error{kInternal} with WHAT when bytes are missing or left over.
template <typename Message>
[[nodiscard]] Message read_fields(std::string_view bytes, std::string_view what) {
    Message message;
    FieldReader reader(bytes, what);
    fields(reader, message);
    if (!reader.done()) fail(ExitCode::kInternal, "{}: bytes are left over", what);
    return message;
}

}  // namespace dslaunch
