#include "graph/archive/archive_source.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/source_range_serialization.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::graph {

namespace {

using caffe2::serialize::PyTorchStreamReader;
using torch::jit::Source;
using torch::jit::SourceRange;

std::string text_of(PyTorchStreamReader& reader, const std::string& record) {
    const auto [data, bytes] = reader.getRecord(record);
    return {static_cast<const char*>(data.get()), bytes};
}

// The table beside a code record: from which byte on the code stems from which Python lines. Texts
// are numbers into a table of strings since LibTorch 1.12, strings before.
class OriginTable final : public torch::jit::SourceRangeUnpickler {
  public:
    explicit OriginTable(std::string pickled) : pickled_(std::move(pickled)) {}

    std::optional<SourceRange> findSourceRangeThatGenerated(const SourceRange& range) override {
        if (!pickled_.empty()) read(std::exchange(pickled_, {}));
        const auto next = ranges_.upper_bound(range.start());
        if (next == ranges_.begin()) return std::nullopt;
        return std::prev(next)->second;
    }

  private:
    void read(const std::string& pickled) {
        const c10::IValue table = torch::jit::unpickle(pickled.data(), pickled.size());
        const auto& parts = table.toTupleRef().elements();
        c10::IValue lines = table;
        if (parts.size() == 3 && parts[0].isString() &&
            parts[0].toStringRef() == torch::jit::kFormatWithStringTable) {
            for (const c10::IValue& text : parts[1].toTupleRef().elements())
                texts_.push_back(std::make_shared<std::string>(text.toStringRef()));
            lines = parts[2];
        }
        for (const c10::IValue& line : lines.toTupleRef().elements()) {
            const auto& fields = line.toTupleRef().elements();
            const auto begin = static_cast<size_t>(fields.at(torch::jit::kByteOffsetIndex).toInt());
            const auto& range = fields.at(torch::jit::kSourceRangeIndex).toTupleRef().elements();
            ranges_.insert_or_assign(
                begin, SourceRange(source(range.at(0)), static_cast<size_t>(range.at(1).toInt()),
                                   static_cast<size_t>(range.at(2).toInt())));
        }
        sources_.clear();
    }

    // Many lines name one source: it is made once.
    std::shared_ptr<Source> source(const c10::IValue& value) {
        std::shared_ptr<Source>& made = sources_[&value.toTupleRef()];
        if (made != nullptr) return made;
        const auto& fields = value.toTupleRef().elements();
        const auto first_line = static_cast<size_t>(fields.at(2).toInt());
        if (texts_.empty()) {
            made = std::make_shared<Source>(fields.at(0).toStringRef(),
                                            fields.at(1).toOptional<std::string>(), first_line);
            return made;
        }
        std::vector<std::string_view> pieces;
        std::vector<std::shared_ptr<std::string>> owners;
        for (const int64_t index : fields.at(0).toIntVector()) {
            owners.push_back(texts_.at(static_cast<size_t>(index)));
            pieces.emplace_back(*owners.back());
        }
        made = std::make_shared<Source>(
            torch::jit::StringCordView(std::move(pieces), std::move(owners)),
            *texts_.at(static_cast<size_t>(fields.at(1).toInt())), first_line);
        return made;
    }

    std::string pickled_;  // until it is asked for
    std::vector<std::shared_ptr<std::string>> texts_;
    std::map<size_t, SourceRange> ranges_;  // by the first byte of code
    std::map<const c10::ivalue::Tuple*, std::shared_ptr<Source>> sources_;
};

}  // namespace

std::shared_ptr<Source> read_source(PyTorchStreamReader& reader, const std::string& qualifier) {
    std::string record = "code/" + qualifier + ".py";
    std::replace(record.begin() + 5, record.end() - 3, '.', '/');
    if (!reader.hasRecord(record)) return nullptr;
    std::shared_ptr<OriginTable> origins;
    if (reader.hasRecord(record + ".debug_pkl"))
        origins = std::make_shared<OriginTable>(text_of(reader, record + ".debug_pkl"));
    return std::make_shared<Source>(text_of(reader, record), record, 1, std::move(origins));
}

}  // namespace dslaunch::graph
