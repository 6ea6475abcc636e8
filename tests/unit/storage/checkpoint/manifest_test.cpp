// The manifest: a printed manifest is equal after parsing, and one whose pieces do not tile is
// refused.
#include "storage/checkpoint/manifest.h"

#include <functional>
#include <limits>
#include <random>

#include "base/error.h"
#include "memory_tree.h"
#include "save_tools.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

class RandomCheckpoint {
  public:
    explicit RandomCheckpoint(uint64_t seed) : random_(seed) {}

    Checkpoint make() {
        checkpoint_.version = word();
        checkpoint_.id = word();
        checkpoint_.created = word();
        checkpoint_.training = {
            below(1'000'000), below(1'000'000), below(INT64_MAX), below(1'000'000), random_(),
            real(),           real(),           below(100),       below(100),       -below(100)};
        if (below(2) == 0)
            checkpoint_.training.evals = {
                EvalMetric::kMargins, 1 + below(100), real(), 1, real(), below(9)};
        checkpoint_.world_size = 1 + below(8);
        checkpoint_.zero_stage = below(4);
        checkpoint_.optimizer = word();
        for (int64_t i = below(3); i >= 0; --i)
            checkpoint_.states.push_back(fmt::format("{}{}", word(), i));
        checkpoint_.config_json = word();
        if (below(2) == 0) checkpoint_.data = {word(), word(), word()};
        for (int64_t i = below(6); i >= 0; --i) add_tensor(i);
        for (int64_t i = below(3); i >= 0; --i)
            checkpoint_.files.push_back({fmt::format("f-{}.safetensors", i), 4096, hash(), {}});
        for (int i = 0; i < static_cast<int>(checkpoint_.tensors.size()); ++i) add_pieces(i);
        return std::move(checkpoint_);
    }

  private:
    int64_t below(int64_t limit) {
        return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
    }
    Hash128 hash() { return {random_(), random_()}; }
    double real() {
        const double odd[] = {0.0,
                              -0.0,
                              1e300,
                              5e-324,
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(),
                              0.1};
        return below(2) == 0 ? odd[below(7)] : static_cast<double>(random_()) / 3e9;
    }
    std::string word() {
        const char* parts[] = {"a",    "/", "..", "\"", "\\", "\n", "ü", "\xF0\x9F\x98\x80",
                               "\x01", " "};
        std::string text;
        for (int64_t i = below(6); i > 0; --i) text += parts[below(10)];
        return text;
    }
    void add_tensor(int64_t number) {
        CheckpointTensor tensor;
        tensor.name = fmt::format("{}{}", word(), number);
        tensor.kind = static_cast<TensorKind>(below(4));
        for (int64_t i = below(3); tensor.kind != TensorKind::kRankBuffer && i > 0; --i)
            tensor.aliases.push_back(fmt::format("{}~{}.{}", word(), number, i));
        if (tensor.kind == TensorKind::kRankBuffer)
            tensor.rank = static_cast<int>(below(checkpoint_.world_size));
        tensor.dtype = static_cast<DType>(below(13));
        for (int64_t i = below(4); i > 0; --i) tensor.shape.push_back(below(5));
        if (tensor.shape.size() == 2 && below(2) == 0) tensor.strides = {1, tensor.shape[0]};
        if (tensor.kind != TensorKind::kRankBuffer && tensor.numel() > 2 && below(2) == 0)
            tensor.views = {{tensor.name + "~v", {2, 1}, {tensor.numel() - 2, 0}, below(2)}};
        tensor.is_persistent = below(4) > 0;
        if (tensor.kind == TensorKind::kTrained) tensor.updates = below(1000);
        if (tensor.kind == TensorKind::kTrained && tensor.numel() > 0 && below(2) == 0)
            for (int64_t i = below(std::ssize(checkpoint_.states) + 1); i > 0; --i)
                tensor.state_numel.push_back(below(2) == 0 ? kLikeTensor : below(9));
        checkpoint_.tensors.push_back(std::move(tensor));
    }
    void add_pieces(int index) {
        const CheckpointTensor& tensor = checkpoint_.tensors[index];
        const int states =
            tensor.kind == TensorKind::kTrained ? static_cast<int>(checkpoint_.states.size()) : 0;
        for (int state = kWeights; state < states; ++state)
            for (int64_t at = 0; at < tensor.numel_of(state);) {
                const int64_t numel = 1 + below(tensor.numel_of(state) - at);
                CheckpointFile& file = checkpoint_.files[below(std::ssize(checkpoint_.files))];
                file.pieces.push_back(
                    {{index, state, {at, numel}}, file.bytes, hash(), below(4) > 0});
                const DType dtype = state == kWeights ? tensor.dtype : DType::kF32;
                file.bytes += numel * dtype_bytes(dtype);
                at += numel;
            }
    }

    std::mt19937_64 random_;
    Checkpoint checkpoint_;
};

// Returns the message of parse_manifest about a checkpoint after CHANGE.
std::string said_of(const std::function<void(Checkpoint&)>& change) {
    MemoryTree tree;
    CheckpointStore store(tree, "/c", 0);
    const CheckpointReader reader(tree, save(tree, store, 1, "a"));
    Checkpoint checkpoint = reader.checkpoint();
    change(checkpoint);
    try {
        static_cast<void>(parse_manifest("m.json", manifest_text(checkpoint)));
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kCheckpoint);
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("a manifest that was printed parses back equal") {
    for (uint64_t seed = 0; seed < 3000; ++seed) {
        const Checkpoint checkpoint = RandomCheckpoint(seed).make();
        INFO("seed " << seed);
        const std::string text = manifest_text(checkpoint);
        const Checkpoint parsed = parse_manifest("m.json", text);
        CHECK((parsed == checkpoint));
        CHECK(manifest_text(parsed) == text);
        for (const CheckpointFile& file : checkpoint.files)
            CHECK((decode_checkpoint_file(encode(file)) == file));
    }
}

TEST_CASE("a run saves before the first evaluation that counts") {
    CHECK(said_of([](Checkpoint& saved) {
              saved.training.evals = {.metric = EvalMetric::kLoss};
          }) == "");
    CHECK(said_of([](Checkpoint& saved) {
              saved.training.evals = {.metric = EvalMetric::kLoss, .step = 1, .value = 2};
          }) == "");
}

TEST_CASE("a loss that is no number is kept as such") {
    Checkpoint checkpoint = RandomCheckpoint(1).make();
    checkpoint.training.loss = std::numeric_limits<double>::quiet_NaN();
    CHECK(std::isnan(parse_manifest("m", manifest_text(checkpoint)).training.loss));
}

TEST_CASE("what is wrong in a manifest is named") {
    CHECK(said_of([](Checkpoint&) {}).empty());
    const auto expect = [](const std::string& word,
                           const std::function<void(Checkpoint&)>& change) {
        CHECK_THAT(said_of(change), Catch::Contains("m.json: ") && Catch::Contains(word));
    };
    expect("'w.exp_avg': its pieces end at element",
           [](Checkpoint& c) { c.tensors[0].state_numel = {c.tensors[0].numel() + 1}; });
    expect("sizes for", [](Checkpoint& c) { c.tensors[0].state_numel.assign(99, kLikeTensor); });
    expect("newer dslaunch", [](Checkpoint& c) { c.format = 4; });
    expect("'w': its pieces", [](Checkpoint& c) { c.tensors[0].shape = {8, 3}; });
    expect("pieces leave a gap or overlap", [](Checkpoint& c) {
        c.files[2].pieces[0].piece.elements = {8, 12};
    });
    expect("'w.exp_avg': its pieces end at element 0", [](Checkpoint& c) {
        c.files[1].pieces.clear();
        c.files[1].bytes = 4096;
        c.files[3].pieces.clear();
        c.files[3].bytes = 4096;
    });
    expect("not a valid file name", [](Checkpoint& c) { c.files[0].name = "../x"; });
    expect("not a valid file name", [](Checkpoint& c) { c.files[0].name = "manifest.json"; });
    expect("it appears twice", [](Checkpoint& c) { c.files[0].name = c.files[1].name; });
    expect("or an alias appears twice", [](Checkpoint& c) { c.tensors[1].aliases = {"w"}; });
    expect("or an alias appears twice", [](Checkpoint& c) {
        c.tensors[1].views = {{"w", {1}, {1}, 0}};
    });
    for (const CheckpointView& view : std::vector<CheckpointView>{{"v", {2}, {1}, INT64_MAX},
                                                                  {"v", {100}, {1}, 0},
                                                                  {"v", {2, 2}, {1}, 0},
                                                                  {"v", {2}, {INT64_MAX}, 1},
                                                                  {"v", {0}, {1}, 0}})
        expect("view 'v'", [&](Checkpoint& c) { c.tensors[0].views = {view}; });
    expect("its strides", [](Checkpoint& c) { c.tensors[0].strides = {4, 1}; });
    expect("shape is negative or too large", [](Checkpoint& c) {
        c.tensors[1].shape = {INT64_MAX, 2};
    });
    expect("end at", [](Checkpoint& c) { c.files[0].bytes += 1; });
    expect("expected byte", [](Checkpoint& c) { c.files[0].pieces[1].offset_bytes += 1; });
    expect("is not an integer", [](Checkpoint& c) { c.training.step = -1; });
    expect("no state", [](Checkpoint& c) { c.files[0].pieces[1].piece.state = 0; });
    expect("a piece belongs to tensor 7",
           [](Checkpoint& c) { c.files[0].pieces[0].piece.tensor = 7; });
}

TEST_CASE("a checkpoint of format 1 stays readable") {
    // The folder was written once and is never written again: see
    // docs/reference/checkpoint-format.md on upgrades.
    const auto tree = make_disk_tree();
    const std::string folder =
        std::string(test::source_dir()) + "/tests/unit/storage/checkpoint/v1/step-3";
    CHECK(fault_in(*tree, folder).empty());
    const CheckpointReader reader(*tree, folder);
    const Checkpoint& checkpoint = reader.checkpoint();
    CHECK(checkpoint.format == 1);
    CHECK(checkpoint.id == "v1");
    CHECK(checkpoint.training.step == 3);
    CHECK(checkpoint.optimizer == "adamw");
    CHECK(checkpoint.tensors[0].name == "w");
    CHECK(checkpoint.tensors[0].shape == std::vector<int64_t>{7, 3});
    CHECK(checkpoint.tensors[1].dtype == DType::kBF16);
    reader.for_each(0, kWeights, {8, 2},
                    [](const Range& elements, std::span<const std::byte> part) {
                        CHECK(elements.numel == 1);  // the ranks' border lies between the two
                        CHECK(part.size() == 4);
                    });
    // The first weight, read off the file by hand.
    const std::string file = std::string(
        reinterpret_cast<const char*>(
            tree->open(folder + "/weights-00000-of-00002.safetensors")->bytes().data()) +
            4096,
        4);
    CHECK(file == std::string("\x15"
                              "\x0a"
                              "\x4c"
                              "\x10",
                              4));
}
