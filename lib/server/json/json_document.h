// The JSON of a request, read into one flat list: values in their order, and texts left in the
// body. Each value takes 16 bytes, reading takes linear time, and nothing is recursive. Data path:
// body -> [here] -> api_request.h. Immutable after reading: any threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/http/request_budget.h"

namespace dslaunch::server {

// The kinds of values.
enum class JsonKind : uint8_t {
    kNull,
    kBool,
    kInteger,  // fits a signed 64-bit integer
    kReal,     // other numbers, also whole numbers that are too large
    kText,
    kArray,
    kObject,
};

class JsonDocument;

// A view of a value in a document. The document must outlive it.
class JsonView {
  public:
    class Range;

    // Return the kind of the value, and whether it is KIND.
    [[nodiscard]] JsonKind kind() const;
    [[nodiscard]] bool is(JsonKind kind) const { return this->kind() == kind; }
    [[nodiscard]] bool is_number() const { return is(JsonKind::kInteger) || is(JsonKind::kReal); }
    // Returns true for a whole number that does not fit in 64 bits.
    [[nodiscard]] bool is_large_integer() const;
    // REQUIRES, for each of these: the value is of the kind that the function reads.
    [[nodiscard]] bool flag() const;
    [[nodiscard]] int64_t integer() const;
    [[nodiscard]] double real() const;              // also for an integer
    [[nodiscard]] std::string_view digits() const;  // of a large integer, with its `-` if any
    [[nodiscard]] std::string_view text() const;
    [[nodiscard]] int64_t elements() const;  // number of elements, or of an object's fields
    [[nodiscard]] Range items() const;       // for an array
    [[nodiscard]] std::optional<JsonView> find(std::string_view key) const;  // for an object
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

// The elements of an array, for a loop.
class JsonView::Range {
  public:
    // Points at one element.
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

// The reason why a text is not valid JSON.
struct JsonFault {
    bool short_of_memory = false;  // the memory for requests is used up
    std::string why;               // the reason, with the place in the text
};

// The values of one text, which it owns.
class JsonDocument {
  public:
    static constexpr int kDepthMax = 64;

    // Reads TEXT, which must have less than 2^31 bytes, according to RFC 8259: UTF-8, and no key
    // twice in an object. LEASE is charged for the values, and stays charged until the caller
    // shrinks it.
    [[nodiscard]] static std::variant<JsonDocument, JsonFault> read(std::string text,
                                                                    MemoryLease& lease);

    // Returns the value that contains all others.
    [[nodiscard]] JsonView root() const { return {*this, 0}; }

  private:
    friend class JsonView;
    friend class JsonReader;
    struct Place {
        uint32_t begin, numel;  // a text's or large integer's bytes; or only a number of elements
    };
    struct Node {
        union {
            int64_t integer = 0;
            double real;
            Place place;
        };
        uint32_t end = 0;  // the node after this value and its contents
        JsonKind kind = JsonKind::kNull;
        bool marked = false;  // the value is `true` or a large integer
    };
    static_assert(sizeof(Node) == 16);

    JsonDocument() = default;

    std::string text_;  // escapes are replaced by their characters and unused bytes
    std::vector<Node> nodes_;
};

}  // namespace dslaunch::server
