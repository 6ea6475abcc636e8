// One description of a message serves both directions: fields(visit, message) names its members in
// order, FieldWriter and FieldReader visit them. An enum among them needs is_known(value), beside
// its fields(): what arrives may be any number. For the .cpp files that define messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/wire.h"

namespace dslaunch::launch {

// fields() of one message, const or not.
template <typename T, typename Message>
concept Is = std::is_same_v<std::remove_const_t<T>, Message>;

class FieldWriter {
  public:
    void operator()(const std::string& text) { wire_.string(text); }
    void operator()(const std::pair<std::string, std::string>& pair) {
        wire_.string(pair.first).string(pair.second);
    }
    void operator()(uint32_t number) { wire_.u32(number); }
    void operator()(uint64_t number) { wire_.u64(number); }
    void operator()(int64_t number) { wire_.i64(number); }
    void operator()(int number) { wire_.i64(number); }
    void operator()(bool flag) { wire_.u8(flag ? 1 : 0); }
    template <typename Enum>
    requires std::is_enum_v<Enum>
    void operator()(Enum value) { wire_.u8(static_cast<uint8_t>(value)); }
    template <typename Item>
    void operator()(const std::vector<Item>& items) {
        wire_.u32(static_cast<uint32_t>(items.size()));
        for (const Item& item : items) {
            if constexpr (std::is_invocable_v<FieldWriter&, const Item&>) {
                (*this)(item);
            } else {
                fields(*this, item);
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
    void operator()(std::pair<std::string, std::string>& pair) {
        pair.first = wire_.string();
        pair.second = wire_.string();
    }
    void operator()(uint32_t& number) { number = wire_.u32(); }
    void operator()(uint64_t& number) { number = wire_.u64(); }
    void operator()(int64_t& number) { number = wire_.i64(); }
    void operator()(int& number) { number = static_cast<int>(wire_.i64()); }
    void operator()(bool& flag) { flag = wire_.u8() != 0; }
    template <typename Enum>
    requires std::is_enum_v<Enum>
    void operator()(Enum& value) {
        const uint8_t number = wire_.u8();
        if (!is_known(static_cast<Enum>(number))) {
            fail(ExitCode::kInternal, "a frame holds the unknown value {}", number);
        }
        value = static_cast<Enum>(number);
    }
    // Items are read one by one: a count that lies runs out of bytes before it runs out of memory.
    template <typename Item>
    void operator()(std::vector<Item>& items) {
        const uint32_t count = wire_.u32();
        items.clear();
        for (uint32_t i = 0; i < count; ++i) {
            items.emplace_back();
            if constexpr (std::is_invocable_v<FieldReader&, Item&>) {
                (*this)(items.back());
            } else {
                fields(*this, items.back());
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

}  // namespace dslaunch::launch
