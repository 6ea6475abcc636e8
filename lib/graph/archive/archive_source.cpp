#include "graph/archive/archive_source.h"

#include <torch/csrc/jit/serialization/source_range_serialization.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "storage/pickle/restricted_unpickler.h"

namespace dslaunch::graph {

namespace {

using storage::PickleValue;
using torch::jit::Source;
using torch::jit::SourceRange;
using Kind = PickleValue::Kind;

// The table beside a code record: from which byte on the code stems from which Python lines. Texts
// are numbers into a table of strings since LibTorch 1.12, strings before.
class OriginTable final : public torch::jit::SourceRangeUnpickler {
  public:
    OriginTable(std::string name, std::string pickled)
        : name_(std::move(name)), pickled_(std::move(pickled)) {}

    std::optional<SourceRange> findSourceRangeThatGenerated(const SourceRange& range) override {
        if (!pickled_.empty()) read_or_ignore(std::exchange(pickled_, {}));
        const auto next = ranges_.upper_bound(range.start());
        if (next == ranges_.begin()) return std::nullopt;
        return std::prev(next)->second;
    }

  private:
    void read_or_ignore(const std::string& pickled) {
        try {
            const storage::Pickle table(name_, std::as_bytes(std::span(pickled)),
                                        storage::PickleWords::kScript);
            read(table.root());
        } catch (const Error& error) {
            log_debug("model", "the lines of Python are not known: {}", error.what());
            ranges_.clear();
        }
        sources_.clear();
    }

    [[noreturn]] void bad() const { fail(ExitCode::kInput, "{}: is no table of lines", name_); }
    const PickleValue& part(const PickleValue& value, size_t index) const {
        if (value.kind != Kind::kTuple || index >= value.items.size()) bad();
        return *value.items[index];
    }
    size_t number(const PickleValue& value, size_t limit) const {
        if (value.kind != Kind::kInteger || value.integer < 0) bad();
        const auto number = static_cast<size_t>(value.integer);
        if (number > limit) bad();
        return number;
    }
    const std::string& words(const PickleValue& value) const {
        if (value.kind != Kind::kText) bad();
        return value.text;
    }

    void read(const PickleValue& table) {
        const PickleValue* lines = &table;
        if (table.kind == Kind::kTuple && table.items.size() == 3 &&
            table.items[0]->kind == Kind::kText &&
            table.items[0]->text == torch::jit::kFormatWithStringTable) {
            for (const PickleValue* text : part(table, 1).items)
                texts_.push_back(std::make_shared<std::string>(words(*text)));
            lines = &part(table, 2);
        }
        if (lines->kind != Kind::kTuple) bad();
        for (const PickleValue* line : lines->items) {
            const size_t begin = number(part(*line, torch::jit::kByteOffsetIndex), SIZE_MAX);
            const PickleValue& range = part(*line, torch::jit::kSourceRangeIndex);
            const std::shared_ptr<Source> made = source(part(range, 0));
            // LibTorch marks one byte where a source is empty.
            const size_t end = number(part(range, 2), made->size() + 1);
            const size_t start = number(part(range, 1), std::min(end, made->size()));
            ranges_.insert_or_assign(begin, SourceRange(made, start, end));
        }
    }

    // Many lines name one source: it is made once.
    std::shared_ptr<Source> source(const PickleValue& value) {
        std::shared_ptr<Source>& made = sources_[&value];
        if (made != nullptr) return made;
        constexpr size_t kLinesMax = size_t{1} << 31;
        const size_t first_line = number(part(value, 2), kLinesMax);
        if (texts_.empty()) {
            const PickleValue& file = part(value, 1);
            made = std::make_shared<Source>(
                words(part(value, 0)),
                file.kind == Kind::kNone ? std::nullopt : std::optional(words(file)), first_line);
            return made;
        }
        std::vector<std::string_view> pieces;
        std::vector<std::shared_ptr<std::string>> owners;
        if (part(value, 0).kind != Kind::kList) bad();
        for (const PickleValue* index : part(value, 0).items) {
            owners.push_back(text(*index));
            pieces.emplace_back(*owners.back());
        }
        made = std::make_shared<Source>(
            torch::jit::StringCordView(std::move(pieces), std::move(owners)), *text(part(value, 1)),
            first_line);
        return made;
    }

    const std::shared_ptr<std::string>& text(const PickleValue& index) const {
        const size_t at = number(index, texts_.size());
        if (at == texts_.size()) bad();
        return texts_[at];
    }

    std::string name_;
    std::string pickled_;  // until it is asked for
    std::vector<std::shared_ptr<std::string>> texts_;
    std::map<size_t, SourceRange> ranges_;  // by the first byte of code
    std::map<const PickleValue*, std::shared_ptr<Source>> sources_;
};

}  // namespace

std::shared_ptr<Source> make_source(const std::string& name, const std::string& text,
                                    std::string origins) {
    std::shared_ptr<OriginTable> table;
    if (!origins.empty()) table = std::make_shared<OriginTable>(name, std::move(origins));
    return std::make_shared<Source>(text, name, 1, std::move(table));
}

}  // namespace dslaunch::graph
