// The decoder, compared with the logits of stock transformers (tests/fixtures/make_huggingface.py):
// texts as a whole and in pieces, alone and among others, shared by ranks, and with rounded
// weights.
#include "decoder/decode/decoder.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>

#include <barrier>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/text_bytes.h"
#include "decoder/engine/engine.h"
#include "decoder/ranks/group_runner.h"
#include "decoder/score/text_scores.h"
#include "graph/adapter/merged_model.h"
#include "graph/models/transformer.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/files/safetensors.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch::decoder {
namespace {

namespace fs = std::filesystem;
using kernels::MatrixForm;
using storage::SafetensorsEntry;

struct Fixture {
    // ADAPTER_PATH is the folder of an adapter and its expected results; empty: no adapter.
    explicit Fixture(const std::string& path, const std::string& adapter_path = "")
        : stored(storage::open_model_folder(path)),
          folder(stored),
          adapter(adapter_path),
          expected((adapter.empty() ? path : adapter) + "/expected.safetensors") {
        if (!adapter.empty()) storage::AdapterChanges(adapter, &stored.config).adapt(folder.config);
        const SafetensorsEntry& entry = *expected.find("tokens");
        rows = entry.shape[0];
        length = entry.shape[1];
        // Allows longer texts than the model was made for, like --context; `dynamic` is about
        // these.
        folder.config.context = std::max(folder.config.context, length);
        std::vector<int64_t> numbers(static_cast<size_t>(rows * length));
        std::memcpy(numbers.data(), entry.bytes.data(), entry.bytes.size());
        tokens.assign(numbers.begin(), numbers.end());
        logits.resize(static_cast<size_t>(rows * length * folder.config.vocabulary));
        const SafetensorsEntry& given = *expected.find("logits");
        REQUIRE(given.bytes.size() == logits.size() * sizeof(float));
        std::memcpy(logits.data(), given.bytes.data(), given.bytes.size());
    }

    storage::ModelFolder stored, folder;  // as stored, and with the adapter
    std::string adapter;
    storage::SafetensorsFile expected;
    int64_t rows = 0, length = 0;
    std::vector<int32_t> tokens;  // [rows, length]
    std::vector<float> logits;    // [rows, length, vocabulary]
};

std::vector<std::string> fixtures() {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(test::fixture_path("huggingface")))
        paths.push_back(entry.path().string());
    REQUIRE(paths.size() >= 55);
    return paths;
}

// One rank's decoder for a fixture.
struct Rank {
    Rank(const Fixture& fixture, const DecoderPart& part, RankSum* sum, DecoderOptions options,
         std::optional<MatrixForm> form = std::nullopt) {
        WeightSource source(fixture.stored, form, team);
        std::optional<storage::AdapterChanges> adapter;
        if (!fixture.adapter.empty()) {
            adapter.emplace(fixture.adapter, &fixture.stored.config);
            source.adapt(
                *adapter, fixture.folder.config,
                [](std::span<float> weight, const storage::WeightChange& change, bool transposed) {
                    graph::take_out_beginning(
                        weight, change.pair->out(),
                        {change.init, change.pair->r, change.pair->scale, transposed});
                });
        }
        options.pages = 64;
        options.frequencies = graph::rotary_frequencies(fixture.folder.config);
        decoder.emplace(fixture.folder.config, load_decoder(fixture.folder.config, part, source),
                        options, team, sum);
    }
    kernels::ThreadTeam team{1};
    std::optional<Decoder> decoder;
};

DecoderPart whole_of(const Fixture& fixture) {
    return decoder_part(fixture.folder.config, {}, {});
}

// Runs all texts of FIXTURE in steps of PIECE positions each. Returns the logits of all rows, in
// their order.
std::vector<float> run(BatchRunner& runner, const Fixture& fixture, int64_t piece) {
    const auto vocabulary = static_cast<size_t>(fixture.folder.config.vocabulary);
    std::vector<float> logits(fixture.logits.size());
    PagePool pool(static_cast<int32_t>(runner.pages()));
    std::vector<std::vector<int32_t>> pages(static_cast<size_t>(fixture.rows));
    for (int64_t begin = 0; begin < fixture.length; begin += piece) {
        const int64_t end = std::min(begin + piece, fixture.length);
        Batch batch;
        std::vector<size_t> places;
        for (int64_t text = 0; text < fixture.rows; ++text) {
            REQUIRE(pool.grow(pages[static_cast<size_t>(text)], end));
            batch.sequences.push_back({pages[static_cast<size_t>(text)]});
            for (int64_t position = begin; position < end; ++position) {
                const int64_t place = text * fixture.length + position;
                // transformers computed each text at once.
                batch.rows.push_back({fixture.tokens[static_cast<size_t>(place)],
                                      static_cast<int32_t>(position), static_cast<int32_t>(text),
                                      static_cast<int32_t>(fixture.length), true});
                places.push_back(static_cast<size_t>(place));
            }
        }
        const std::span<const float> made = runner.run(batch);
        REQUIRE(made.size() == places.size() * vocabulary);
        for (size_t i = 0; i < places.size(); ++i)
            std::copy_n(made.data() + i * vocabulary, vocabulary,
                        logits.data() + places[i] * vocabulary);
    }
    return logits;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        REQUIRE(std::isfinite(a[i]));
        largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
    }
    return largest;
}

// Returns the root mean square of the difference, divided by the root mean square of EXPECTED.
double relative_error(const std::vector<float>& made, const std::vector<float>& expected) {
    double squares = 0, of_expected = 0;
    for (size_t i = 0; i < made.size(); ++i) {
        const double apart = static_cast<double>(made[i]) - expected[i];
        squares += apart * apart;
        of_expected += static_cast<double>(expected[i]) * expected[i];
    }
    return std::sqrt(squares / of_expected);
}

// In each of a few layers, some 20 numbers of about 1 are added in fp32, in another order.
constexpr double kRounding = 2e-5;

TEST_CASE("heads that attention has no room for are refused when the weights are read") {
    Fixture fixture(fixtures().front());
    fixture.folder.config.head_width = kernels::kAttendWidthMax + 4;
    CHECK_THROWS_WITH(Rank(fixture, whole_of(fixture), nullptr, {}),
                      Catch::Contains("config.json: heads have 516 elements"));
}

TEST_CASE("every family's logits are those of transformers, whole, in pieces and by tokens") {
    for (const std::string& path : fixtures()) {
        INFO(path);
        const Fixture fixture(path);
        std::vector<float> first;
        for (const int64_t piece : {fixture.length, int64_t{5}, int64_t{1}}) {
            DecoderOptions options;
            options.streams = piece == 5;  // reads weights ahead, which changes only the time
            Rank rank(fixture, whole_of(fixture), nullptr, options);
            LoneRunner runner(*rank.decoder);
            const std::vector<float> logits = run(runner, fixture, piece);
            CHECK(difference(logits, fixture.logits) < kRounding);
            // A row's bits do not depend on the rows beside it.
            if (first.empty()) first = logits;
            CHECK(logits == first);
        }
    }
}

TEST_CASE("each switch of a family is seen in the logits of its fixture") {
    using storage::TransformerConfig;
    struct Change {
        const char* fixture;
        void (*make)(TransformerConfig& config);
    };
    using storage::ActivationKind;
    using storage::NormKind;
    const Change changes[] = {
        {"arcee", [](auto& config) { config.activation = ActivationKind::kRelu; }},
        {"cohere", [](auto& config) { config.logit_scale = 1; }},
        {"cohere", [](auto& config) { config.turns_neighbours = false; }},
        {"cohere2", [](auto& config) { config.layers[3].turns = true; }},
        {"glm4", [](auto& config) { config.turns_neighbours = false; }},
        {"granite", [](auto& config) { config.embedding_scale = 1; }},
        {"granite", [](auto& config) { config.residual_scale = 1; }},
        {"granite", [](auto& config) { config.logit_scale = 1; }},
        {"granite", [](auto& config) { config.scale *= 2; }},
        {"nemotron", [](auto& config) { config.norm = NormKind::kLayer; }},
        {"olmo", [](auto& config) { config.norm = NormKind::kRms; }},
        {"olmo", [](auto& config) { config.projection_cap = 0; }},
        {"olmo2", [](auto& config) { config.norm_epsilon = 0.1; }},
        {"qwen2-moe", [](auto& config) { config.expert_weights_sum_to_one = true; }},
        {"smollm3", [](auto& config) { config.layers[3].turns = true; }},
        {"smollm3", [](auto& config) { config.layers[3].has_window = false; }},
    };
    for (const Change& change : changes) {
        Fixture fixture(test::fixture_path(std::string("huggingface/") + change.fixture));
        INFO(change.fixture << ", change " << &change - changes);
        const auto logits = [&] {
            Rank rank(fixture, whole_of(fixture), nullptr, {});
            LoneRunner runner(*rank.decoder);
            return run(runner, fixture, fixture.length);
        };
        CHECK(difference(logits(), fixture.logits) < kRounding);
        change.make(fixture.folder.config);
        CHECK(difference(logits(), fixture.logits) > 100 * kRounding);
    }
}

TEST_CASE("the loss of held-out text is that of transformers") {
    for (const std::string& path : fixtures()) {
        INFO(path);
        const Fixture fixture(path);
        const SafetensorsEntry& entry = *fixture.expected.find("targets");
        std::vector<int64_t> numbers(fixture.tokens.size());
        std::memcpy(numbers.data(), entry.bytes.data(), entry.bytes.size());
        const std::vector<int32_t> targets(numbers.begin(), numbers.end());
        float expected = 0;
        std::memcpy(&expected, fixture.expected.find("loss")->bytes.data(), sizeof expected);
        DecoderOptions options;
        options.rows_max = 5;
        Rank rank(fixture, whole_of(fixture), nullptr, options);
        LoneRunner runner(*rank.decoder);
        TextScorer scorer(runner);
        TextScore sum;
        const auto length = static_cast<size_t>(fixture.length);
        for (size_t begin = 0; begin < targets.size(); begin += length)
            sum += scorer.score(std::span(fixture.tokens).subspan(begin, length),
                                std::span(targets).subspan(begin, length));
        CHECK(std::abs(sum.loss / static_cast<double>(sum.targets) - expected) < kRounding);
    }
}

// Ranks that are threads of one process, and add up their results.
class ThreadSum final : public RankSum {
  public:
    struct Meeting {
        explicit Meeting(int size) : parts(static_cast<size_t>(size)), barrier(size) {}
        std::vector<std::vector<float>> parts;
        std::barrier<> barrier;
    };
    ThreadSum(Meeting& meeting, size_t rank) : meeting_(meeting), rank_(rank) {}

    void sum(std::span<float> values) override {
        meeting_.parts[rank_].assign(values.begin(), values.end());
        meeting_.barrier.arrive_and_wait();
        std::ranges::fill(values, 0.0F);
        for (const std::vector<float>& part : meeting_.parts)
            for (size_t i = 0; i < values.size(); ++i) values[i] += part[i];
        meeting_.barrier.arrive_and_wait();
    }

  private:
    Meeting& meeting_;
    size_t rank_;
};

// Stages in one process, one after the other, each with two tensor ranks.
class SharedRunner final : public BatchRunner {
  public:
    SharedRunner(const Fixture& fixture, int tensor_ranks, int stages)
        : fixture_(fixture), tensor_ranks_(tensor_ranks) {
        for (int stage = 0; stage < stages; ++stage) {
            meetings_.push_back(std::make_unique<ThreadSum::Meeting>(tensor_ranks));
            for (int rank = 0; rank < tensor_ranks; ++rank) {
                sums_.push_back(
                    std::make_unique<ThreadSum>(*meetings_.back(), static_cast<size_t>(rank)));
                ranks_.push_back(std::make_unique<Rank>(
                    fixture,
                    decoder_part(fixture.folder.config, {rank, tensor_ranks}, {stage, stages}),
                    sums_.back().get(), DecoderOptions{}));
            }
        }
    }
    int64_t vocabulary() const override { return fixture_.folder.config.vocabulary; }
    int64_t context() const override { return fixture_.folder.config.context; }
    int64_t pages() const override { return 64; }
    int64_t rows_max() const override { return 512; }

    std::span<float> run(const Batch& batch) override {
        const size_t width = static_cast<size_t>(tensor_ranks_);
        for (size_t first = 0; first < ranks_.size(); first += width) {
            std::vector<std::thread> threads;
            for (size_t i = first; i < first + width; ++i)
                threads.emplace_back([&, i, first] {
                    Decoder& decoder = *ranks_[i]->decoder;
                    const std::span<float> hidden = decoder.hidden(batch);
                    if (first == 0) {
                        decoder.embed(batch);
                    } else {
                        std::ranges::copy(ranks_[first - width]->decoder->hidden(batch),
                                          hidden.begin());
                    }
                    decoder.run_layers(batch);
                });
            for (std::thread& thread : threads) thread.join();
        }
        const auto rows = static_cast<size_t>(batch.logits_rows());
        logits_.assign(rows * static_cast<size_t>(vocabulary()), 0);
        for (size_t i = ranks_.size() - width; i < ranks_.size(); ++i) {
            const Range own = ranks_[i]->decoder->weights().vocabulary;
            const std::span<const float> mine = ranks_[i]->decoder->logits(batch);
            for (size_t row = 0; row < rows; ++row)
                std::copy_n(mine.data() + static_cast<int64_t>(row) * own.numel, own.numel,
                            logits_.data() + static_cast<int64_t>(row) * vocabulary() + own.begin);
        }
        return logits_;
    }

  private:
    const Fixture& fixture_;
    int tensor_ranks_;
    std::vector<std::unique_ptr<ThreadSum::Meeting>> meetings_;
    std::vector<std::unique_ptr<ThreadSum>> sums_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::vector<float> logits_;
};

TEST_CASE("tensor ranks and stages compute what one rank does") {
    for (const std::string& path : fixtures()) {
        INFO(path);
        const Fixture fixture(path);
        for (const auto& [tensor_ranks, stages] :
             {std::pair{2, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
            if (fixture.folder.config.key_heads % tensor_ranks != 0) continue;
            SharedRunner runner(fixture, tensor_ranks, stages);
            CHECK(difference(run(runner, fixture, 7), fixture.logits) < kRounding);
        }
    }
}

TEST_CASE("the ranks of a job become tensor ranks of a host, and stages between hosts") {
    storage::TransformerConfig config;
    config.key_heads = 4;
    config.layers.resize(6);
    struct Row {
        std::vector<int> nodes;
        int asked, tensor_ranks, stages;
    };
    const Row rows[] = {{{1}, 0, 1, 1},    {{2}, 0, 2, 1},    {{4}, 0, 4, 1},
                        {{3}, 0, 1, 3},    {{2, 2}, 0, 2, 2}, {{1, 1, 1, 1}, 0, 1, 4},
                        {{4, 2}, 0, 2, 3}, {{4}, 2, 2, 2},    {{2, 2}, 4, 4, 1}};
    for (const Row& row : rows) {
        const RankMesh mesh = choose_mesh(config, row.nodes, row.asked);
        CHECK(mesh.tensor_ranks == row.tensor_ranks);
        CHECK(mesh.stages == row.stages);
        CHECK(mesh.ranks_of_stages().back().front() == 0);
    }
    CHECK_THROWS_WITH(choose_mesh(config, {3}, 3), Catch::Contains("key heads"));
    CHECK_THROWS_WITH(choose_mesh(config, {7}, 0), Catch::Contains("6 layers"));
}

TEST_CASE("rounded weights and caches stay near the logits, the nearer the more bits") {
    const Fixture fixture(test::fixture_path("huggingface/qwen3"));
    const auto error = [&](std::optional<MatrixForm> form, DType cache) {
        DecoderOptions options;
        options.cache = cache;
        Rank rank(fixture, whole_of(fixture), nullptr, options, form);
        LoneRunner runner(*rank.decoder);
        return relative_error(run(runner, fixture, 3), fixture.logits);
    };
    const double bf16 = error(MatrixForm::kBf16, DType::kF32);
    const double int8 = error(MatrixForm::kInt8, DType::kF32);
    const double int4 = error(MatrixForm::kInt4, DType::kF32);
    CHECK(error(MatrixForm::kF32, DType::kF32) < kRounding);
    // A weight of n bits has an error of about 2^-n of its group's largest weight, or half of that.
    // A row of logits results from some ten products, so each bound is 8 times 2^-n.
    CHECK(error(MatrixForm::kFp16, DType::kF32) < bf16);
    CHECK(bf16 > 1e-5);
    CHECK(bf16 < 8.0 / 256);
    CHECK(int8 < 8.0 / 256);
    CHECK(int4 > int8);
    CHECK(int4 < 8.0 / 16);
    CHECK(error(MatrixForm::kNf4, DType::kF32) < 8.0 / 16);
    const double cache = error(std::nullopt, DType::kBF16);
    CHECK(cache > 1e-6);
    CHECK(cache < 8.0 / 256);
}

TEST_CASE("every family takes weights of every form") {
    for (const std::string& path : fixtures()) {
        INFO(path);
        const Fixture fixture(path);
        const auto error = [&](MatrixForm form) {
            Rank rank(fixture, whole_of(fixture), nullptr, {}, form);
            LoneRunner runner(*rank.decoder);
            return relative_error(run(runner, fixture, 9), fixture.logits);
        };
        CHECK(error(MatrixForm::kF32) < kRounding);
        // The same bounds as in the test before, but by the number of layers; that test has two. If
        // a router chooses another expert, the error is larger.
        const auto products = static_cast<double>(4 * fixture.folder.config.layers.size());
        CHECK(error(MatrixForm::kFp16) < products / 2048);
        if (fixture.folder.config.has_experts()) continue;
        const double bf16 = error(MatrixForm::kBf16), int4 = error(MatrixForm::kInt4);
        CHECK(bf16 < products / 256);
        CHECK(error(MatrixForm::kInt8) < products / 256);
        CHECK(int4 > bf16);
        CHECK(int4 < products / 16);
        CHECK(error(MatrixForm::kNf4) < products / 16);
    }
}

// The adapters of tests/fixtures/make_adapters.py, and the bases that they name.
struct Form {
    std::string name, path, base;
};

std::vector<Form> adapter_forms() {
    std::vector<Form> forms;
    for (const auto& entry : fs::directory_iterator(test::fixture_path("adapters"))) {
        const std::string path = entry.path().string();
        const storage::MappedFile config(path + "/adapter_config.json");
        forms.push_back(
            {entry.path().filename().string(), path,
             test::fixture_path("huggingface/") +
                 storage::parse_adapter_config(path, text_in(config.bytes())).base_model});
    }
    REQUIRE(forms.size() >= 44);
    return forms;
}

TEST_CASE("what PEFT saves computes beside the weights what PEFT computes") {
    for (const Form& form : adapter_forms()) {
        INFO(form.name);
        const Fixture fixture(form.base, form.path);
        Rank rank(fixture, whole_of(fixture), nullptr, {});
        LoneRunner runner(*rank.decoder);
        CHECK(relative_error(run(runner, fixture, fixture.length), fixture.logits) < kRounding);
        SharedRunner shared(fixture, fixture.folder.config.key_heads % 2 == 0 ? 2 : 1, 2);
        CHECK(relative_error(run(shared, fixture, 3), fixture.logits) < kRounding);
    }
}

TEST_CASE("what an adapter has for a weight that is no matrix is refused by name") {
    const test::TemporaryFolder folder;
    const std::string adapter = folder.path() + "/adapter";
    fs::copy(test::fixture_path("adapters/anchors"), adapter);
    test::write_file(adapter + "/adapter_config.json",
                     R"({"peft_type": "LORA", "r": 2, "trainable_token_indices": {"norm": [1]}})");
    const std::string norm = "base_model.model.model.norm.";
    const auto refused = [&](const std::vector<SafetensorsEntry>& entries) {
        storage::SafetensorsWriter writer(adapter + "/adapter_model.safetensors", entries);
        for (size_t i = 0; i < entries.size(); ++i) {
            const int64_t numel = entries[i].shape[0] * entries[i].shape[1];
            writer.write(i, std::vector<std::byte>(static_cast<size_t>(numel) * sizeof(float)));
        }
        writer.commit();
        const Fixture fixture(test::fixture_path("huggingface/llama"), adapter);
        CHECK_THROWS_WITH(Rank(fixture, whole_of(fixture), nullptr, {}),
                          Catch::Contains("changes a weight that is not a matrix"));
    };
    refused({{norm + "lora_A.weight", DType::kF32, {2, 16}, {}},
             {norm + "lora_B.weight", DType::kF32, {16, 2}, {}}});
    refused({{norm + "token_adapter.trainable_tokens_delta", DType::kF32, {1, 16}, {}}});
}

TEST_CASE("what PEFT saves becomes a model that computes what PEFT computes") {
    const c10::InferenceMode no_gradients;
    for (const Form& form : adapter_forms()) {
        INFO(form.name);
        const auto merged = [&] {
            return graph::load_merged(form.base, form.path, graph::Trust::kNone);
        };
        if (form.name == "lora_bias" || form.name == "adapter_name") {
            CHECK_THROWS_WITH(merged(), Catch::Contains("changes the bias of a layer without a "
                                                        "bias, so it cannot be merged"));
            continue;
        }
        const Fixture fixture(form.base, form.path);
        graph::Model model = merged().model;
        model.module().eval();
        const std::vector<int64_t> tokens(fixture.tokens.begin(), fixture.tokens.end());
        const at::Tensor made =
            model.module()
                .get_method("logits")(
                    {at::tensor(tokens, at::kLong).view({fixture.rows, fixture.length})})
                .toTensor()
                .contiguous();
        const float* numbers = made.const_data_ptr<float>();
        CHECK(relative_error({numbers, numbers + made.numel()}, fixture.logits) < kRounding);
    }
}

}  // namespace
}  // namespace dslaunch::decoder
