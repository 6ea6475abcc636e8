#include "storage/foreign/affine_map.h"

#include <algorithm>

#include "storage/foreign/deepspeed_parts.h"

namespace dslaunch::storage {
namespace {

constexpr int64_t kRunsMax = int64_t{1} << 22;   // runs of one tensor
constexpr int64_t kNumelMax = int64_t{1} << 48;  // elements of a tensor
constexpr size_t kDimensionsMax = 16;

// Collects the pieces of one tensor while its affine_map is read.
class Map {
  public:
    Map(const TorchFile& file, const std::string& name) : file_(file), name_(name) {}

    [[noreturn]] void bad(std::string_view why) const {
        refuse(file_.path(), "the affine_map of `{}` is not supported, or damaged: {}", name_, why);
    }

    // Returns a list of sizes or strides, each from 0 to kNumelMax.
    [[nodiscard]] std::vector<int64_t> numbers(const PickleValue& list) const {
        if (list.items.size() > kDimensionsMax) bad("a shape has too many dimensions");
        std::vector<int64_t> found;
        for (const PickleValue* item : list.items) found.push_back(integer_or(item, -1));
        for (const int64_t number : found)
            if (number < 0 || number > kNumelMax) bad("a number is impossible");
        return found;
    }

    [[nodiscard]] int64_t product(const std::vector<int64_t>& shape) const {
        int64_t numel = 1;
        for (const int64_t size : shape) {
            if (size > 0 && numel > kNumelMax / size) bad("a shape is too large");
            numel *= size;
        }
        return numel;
    }

    // Reads offset and strides of a piece, in the whole tensor (KEY "source") or in the rank's part
    // ("dest"). Returns the strides and then the offset.
    [[nodiscard]] std::vector<int64_t> side(const PickleValue& piece, const char* key,
                                            size_t dimensions) const {
        const PickleValue& value = need(file_, piece, key);
        if (value.items.size() != 2) bad("a piece has no offset and strides");
        std::vector<int64_t> found = numbers(*value.items[1]);
        if (found.size() != dimensions) bad("a piece has more or fewer strides than dimensions");
        found.push_back(integer_or(value.items[0], -1));
        if (found.back() < 0 || found.back() > kNumelMax) bad("an offset is impossible");
        return found;
    }

    void add_piece(const PickleValue& piece, size_t rank) {
        const PickleValue* const scale = piece.find("scale");
        const bool is_one =
            scale == nullptr ||
            (scale->kind == PickleValue::Kind::kReal ? scale->real == 1.0 : scale->integer == 1);
        if (!is_one) bad("a rank stores the values multiplied by a factor");
        const std::vector<int64_t> shape = numbers(need(file_, piece, "shape"));
        const int64_t numel = product(shape);
        held_ += numel;
        if (numel == 0) return;
        const size_t last = shape.size();
        const auto whole = side(piece, "source", last), part = side(piece, "dest", last);
        // Elements of the last dimension form one run if they are contiguous in both the whole
        // tensor and the part.
        const bool together = last > 0 && whole[last - 1] == 1 && part[last - 1] == 1;
        const int64_t length = together ? shape[last - 1] : 1;
        const size_t counted = together ? last - 1 : last;
        if (std::ssize(runs_) + numel / length > kRunsMax) bad("it has too many pieces");
        piece_begin_ = runs_.size();
        std::vector<int64_t> index(counted, 0);
        for (int64_t i = 0; i < numel / length; ++i) {
            int64_t from = whole[last], to = part[last];
            for (size_t d = 0; d < counted; ++d) {
                // Avoids an overflow of the products below, because sizes and strides may be up to
                // 2^48 each.
                if (index[d] > 0 && std::max(whole[d], part[d]) > kNumelMax / index[d])
                    bad("a piece is outside the tensor");
                from += index[d] * whole[d];
                to += index[d] * part[d];
            }
            add_run({from, {rank, to, length}});
            for (size_t d = counted; d > 0 && ++index[d - 1] == shape[d - 1]; --d) index[d - 1] = 0;
        }
    }

    // Returns the runs in the order of the whole tensor. If several ranks have the same run,
    // returns only the first one. For each other copy, adds the pair (first run, copy) to COPIES.
    std::vector<Joining::Run> in_order(int64_t numel,
                                       std::vector<std::pair<Joining::Run, Joining::Run>>& copies) {
        std::ranges::stable_sort(runs_, {}, &Placed::at);
        std::vector<Joining::Run> found;
        int64_t end = 0, begin = -1;
        for (const Placed& one : runs_) {
            if (one.at == begin && one.run.numel == found.back().numel) {
                copies.emplace_back(found.back(), one.run);
                continue;
            }
            if (one.at != end) bad("the ranks' pieces overlap or leave elements out");
            found.push_back(one.run);
            begin = one.at;
            end = one.at + one.run.numel;
        }
        if (end != numel) bad("the ranks' pieces do not make the whole tensor");
        return found;
    }

    // Mark the beginning and the end of one rank's pieces. NUMEL is the number of elements of the
    // rank's part. end_rank() throws if the pieces together do not have NUMEL elements.
    void begin_rank() { held_ = 0; }
    void end_rank(int64_t numel) const {
        if (held_ != numel) bad("a rank's part has another number of elements than its pieces");
    }

  private:
    struct Placed {
        int64_t at = 0;
        Joining::Run run;
    };
    void add_run(const Placed& one) {
        // Joins adjacent runs of the same piece only. Ranks with the same piece then have the same
        // runs, so that in_order() recognizes the copies.
        if (runs_.size() > piece_begin_) {
            Placed& before = runs_.back();
            if (before.run.rank == one.run.rank && before.at + before.run.numel == one.at &&
                before.run.begin + before.run.numel == one.run.begin) {
                before.run.numel += one.run.numel;
                return;
            }
        }
        runs_.push_back(one);
    }

    const TorchFile& file_;
    const std::string& name_;
    std::vector<Placed> runs_;
    size_t piece_begin_ = 0;
    int64_t held_ = 0;
};

}  // namespace

Joining joining_of_map(const TorchFile& file, const PickleValue& map, const std::string& name,
                       const std::vector<std::vector<int64_t>>& shapes) {
    Map reader(file, name);
    Joining joining;
    joining.kind = Joining::Kind::kRuns;
    joining.shape = reader.numbers(need(file, map, "logical_shape"));
    const auto& ranks = need(file, map, "ranks").items;
    if (ranks.size() / 2 != shapes.size())
        reader.bad("it describes more or fewer tensor ranks than the checkpoint has");
    std::vector<bool> seen(shapes.size(), false);
    for (size_t i = 0; i + 1 < ranks.size(); i += 2) {
        const int64_t rank = integer_or(ranks[i], -1);
        if (rank < 0 || rank >= std::ssize(shapes) || seen[static_cast<size_t>(rank)])
            reader.bad("its ranks are impossible");
        const auto at = static_cast<size_t>(rank);
        seen[at] = true;
        const int64_t numel = numel_of(shapes[at]);
        if (reader.product(reader.numbers(need(file, *ranks[i + 1], "shard_shape"))) != numel)
            reader.bad("a rank's part has another shape");
        reader.begin_rank();
        for (const PickleValue* piece : need(file, *ranks[i + 1], "pieces").items)
            reader.add_piece(*piece, at);
        reader.end_rank(numel);
    }
    joining.runs = reader.in_order(reader.product(joining.shape), joining.copies);
    const auto is_outside = [&](const Joining::Run& run) {
        return run.begin + run.numel > numel_of(shapes[run.rank]);
    };
    const auto is_bad = [&](const auto& pair) { return is_outside(pair.second); };
    if (std::ranges::any_of(joining.runs, is_outside) ||
        std::ranges::any_of(joining.copies, is_bad))
        reader.bad("a piece is outside its rank's part");
    return joining;
}

}  // namespace dslaunch::storage
