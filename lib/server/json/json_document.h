// JSON of a request, read into one flat list: values in their order, texts where they stand in the
// body. A value costs 16 bytes, whatever it is, reading takes linear time, and nothing recurses.
// Data path: body -> [here] -> api_request.h. Immutable once it is read: any threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/http/memory_account.h"

namespace dslaunch::server {

enum class JsonKind : uint8_t {
    kNull,
    kBool,
    kInteger,  // of 64 bits with a sign
    kReal,     // others, also whole numbers that are too large
    kText,
    kArray,
    kObject,
};

class JsonDocument;

// A value of a document, which must outlive it.
class JsonView {
  public:
    class Range;

    [[nodiscard]] JsonKind kind() const;
    [[nodiscard]] bool is(JsonKind kind) const { return this->kind() == kind; }
    [[nodiscard]] bool is_number() const { return is(JsonKind::kInteger) || is(JsonKind::kReal); }
    // Returns true for a whole number that does not fit 64 bits.
    [[nodiscard]] bool is_large_integer() const;
    // REQUIRES for each: the kind that it reads.
    [[nodiscard]] bool flag() const;
    [[nodiscard]] int64_t integer() const;
    [[nodiscard]] double real() const;              // also of an integer
    [[nodiscard]] std::string_view digits() const;  // of a large integer, after a `-` or not
    [[nodiscard]] std::string_view text() const;
    [[nodiscard]] int64_t elements() const;  // of an array, or fields of an object
    [[nodiscard]] Range items() const;       // of an array
    [[nodiscard]] std::optional<JsonView> find(std::string_view key) const;  // in an object
    // Calls USE(key, value) for each field of an object, in their order.
    template <typename Use>
    void for_each_field(const Use& use) const;

  private:
    friend class JsonDocument;
    JsonView(const JsonDocument& document, uint32_t at) : document_(&document), at_(at) {}
    [[nodiscard]] Range fields() const;  // each a key, then its value

    const JsonDocument* document_;
    uint32_t at_;
};

class JsonView::Range {
  public:
    class Iterator {
      public:
        [[nodiscard]] JsonView operator*() const { return view_; }
        Iterator& operator++();
        [[nodiscard]] bool operator==(const Iterator& other) const {
            return view_.at_ == other.view_.at_;
        }

      private:
        friend class Range;
        explicit Iterator(JsonView view) : view_(view) {}
        JsonView view_;
    };
    [[nodiscard]] Iterator begin() const { return Iterator(begin_); }
    [[nodiscard]] Iterator end() const { return Iterator(end_); }

  private:
    friend class JsonView;
    Range(JsonView begin, JsonView end) : begin_(begin), end_(end) {}
    JsonView begin_, end_;
};

template <typename Use>
void JsonView::for_each_field(const Use& use) const {
    const Range all = fields();
    for (Range::Iterator at = all.begin(); at != all.end(); ++at) {
        const std::string_view key = (*at).text();
        use(key, *++at);
    }
}

// The reason why a text is not a document.
struct JsonFault {
    bool short_of_memory = false;  // the account is full
    std::string why;               // with the place in the text
};

class JsonDocument {
  public:
    static constexpr int kDepthMax = 64;

    // Reads TEXT, which has under 2^31 bytes, as RFC 8259 has it: UTF-8, and no key twice in an
    // object. LEASE pays for the values, and pays on until the caller shrinks it.
    [[nodiscard]] static std::variant<JsonDocument, JsonFault> read(std::string text,
                                                                    MemoryLease& lease);

    [[nodiscard]] JsonView root() const { return {*this, 0}; }

  private:
    friend class JsonView;
    friend class JsonReader;
    struct Place {
        uint32_t begin, numel;  // bytes of a text or a large integer; elements or fields
    };
    struct Node {
        union {
            int64_t integer = 0;
            double real;
            Place place;
        };
        uint32_t end = 0;  // the node after this value and its contents
        JsonKind kind = JsonKind::kNull;
        bool marked = false;  // true, or a large integer
    };
    static_assert(sizeof(Node) == 16);

    JsonDocument() = default;

    std::string text_;  // in the place of escapes their characters, and then bytes of no meaning
    std::vector<Node> nodes_;
};

}  // namespace dslaunch::server
