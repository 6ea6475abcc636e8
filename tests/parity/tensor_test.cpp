// Whole jobs whose ranks share layers or positions have the losses and weights of one rank, within
// the limits of rounding: alone, and together with data parallelism, ZeRO, pipelines, hosts,
// checkpoints and evaluation.
#include <cstdlib>

#include "fixture_runs.h"

namespace dslaunch::test {
namespace {

// Sums within an operator depend on the number of its threads.
const int kOneThreadEach = ::setenv("OMP_NUM_THREADS", "1", 1);

struct Shape {
    int tensor = 2;
    int data = 1;
    int stages = 1;
    int zero = 0;
    int sequence = 1;
    std::string schedule = "1f1b";

    [[nodiscard]] int ranks() const { return tensor * data * stages * sequence; }
    [[nodiscard]] std::string text() const {
        return "tensor " + std::to_string(tensor) + " x sequence " + std::to_string(sequence) +
               " x data " + std::to_string(data) + " x " + std::to_string(stages) + " stages by " +
               schedule + ", ZeRO " + std::to_string(zero);
    }
};

// Plain SGD moves a weight by as much as its gradient says, so rounding errors do not grow. With
// clipping, every step depends on the norm of all gradients.
constexpr double kRate = 0.1;
constexpr int kMicroSteps = 2;

Json tensor_config_of(const std::string& name, int steps) {
    Json config = fixture_config(fixture_facts(name), kMicroSteps, steps);
    config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", kRate}}}};
    config["gradient_clipping"] = 1.0;
    config["dslaunch"]["communication"]["reduce"] = "micro_step";
    return config;
}

Json in_shape(Json config, const Shape& shape) {
    if (shape.tensor > 1) config["dslaunch"]["tensor"]["size"] = shape.tensor;
    if (shape.sequence > 1) config["dslaunch"]["sequence"]["size"] = shape.sequence;
    if (shape.stages > 1)
        config["dslaunch"]["pipeline"] = {{"stages", shape.stages}, {"schedule", shape.schedule}};
    config["zero_optimization"] = {{"stage", shape.zero}};
    return config;
}

// Sums of no more than kSummands products lead to an element of a gradient (columns of 64 to 256
// tokens, in three layers, forward and backward). If they are added in another order, each step
// errs by at most kSummands * 2^-24 of the largest element, which the norm limits. The error of the
// weights changes later gradients by less than the same amount again.
constexpr double kSummands = 2000;
const double kRounding = kSummands * std::ldexp(1.0, -24);

double weight_bound(int steps) {
    return 4 * steps * kRate * kRounding;
}

// The largest differences from one rank's run: of losses and norms relative to the value, of
// weights absolute.
struct Seen {
    double values = 0;
    double weights = 0;
    int runs = 0;

    ~Seen() {
        if (runs == 0) return;
        std::printf("%d runs: losses and norms within %.1e of one rank's, weights within %.1e\n",
                    runs, values, weights);
    }
};
Seen seen;

struct WholeRun {
    TrainResult result;
    std::map<std::string, Stored> weights;

    WholeRun(const std::string& name, const Json& config, int data) {
        const TemporaryFolder folder;
        result = train_well(folder, ranks(data), name, config);
        weights = read_safetensors(folder.path() + "/out/model.safetensors");
    }

    void check(const TemporaryFolder& folder, const TrainResult& other) const {
        for (const char* key : {"loss", "grad_norm", "eval_loss"}) {
            const std::vector<double> expected = result.values_of(key);
            const std::vector<double> found = other.values_of(key);
            REQUIRE(found.size() == expected.size());
            for (size_t i = 0; i < found.size(); ++i) {
                const double difference = std::abs(found[i] - expected[i]);
                CHECK(difference < kRounding * std::abs(expected[i]));
                seen.values = std::max(seen.values, difference / std::abs(expected[i]));
            }
        }
        const int steps = static_cast<int>(result.losses().size());
        const auto found = read_safetensors(folder.path() + "/out/model.safetensors");
        REQUIRE(found.size() == weights.size());
        double largest = 0;
        for (const auto& [name, expected] : weights) {
            const Stored& stored = found.at(name);
            CHECK(stored.shape == expected.shape);
            REQUIRE(stored.bytes.size() == expected.bytes.size());
            if (expected.dtype != "F32") continue;
            for (size_t at = 0; at < stored.bytes.size(); at += sizeof(float)) {
                float a = 0, b = 0;
                std::memcpy(&a, stored.bytes.data() + at, sizeof a);
                std::memcpy(&b, expected.bytes.data() + at, sizeof b);
                largest = std::max(largest, std::abs(double{a} - double{b}));
            }
        }
        CHECK(largest < weight_bound(steps));
        seen.weights = std::max(seen.weights, largest);
        ++seen.runs;
    }
};

void check_alike(const std::string& name, const Json& config, const WholeRun& alone,
                 const Shape& shape, std::vector<int> slots = {}) {
    INFO(name << ": " << shape.text() << ", on " << std::max<size_t>(1, slots.size()) << " hosts");
    const TemporaryFolder folder;
    const auto trained =
        train_well(folder, slots.empty() ? ranks(shape.ranks()) : hosts(folder, slots), name,
                   in_shape(config, shape));
    alone.check(folder, trained);
}

}  // namespace

TEST_CASE("ranks that share layers train as one rank does") {
    for (const std::string name : {"gpt", "gpt2", "llama", "qwen2"}) {
        const Json config = tensor_config_of(name, 3);
        const WholeRun alone(name, config, 1);
        check_alike(name, config, alone, {2, 1, 1, 3});
        if (name != "gpt") continue;  // the [.long] matrix has every stage, and data ranks
        check_alike(name, config, WholeRun(name, config, 2), {2, 2, 1, 2}, {2, 2});
    }
    const Json config = tensor_config_of("gpt-dropout", 3);
    check_alike("gpt-dropout", config, WholeRun("gpt-dropout", config, 1), {2, 1, 1, 1});
    const Json tied = tensor_config_of("gpt-tied", 3);
    check_alike("gpt-tied", tied, WholeRun("gpt-tied", tied, 1), {4, 1, 1, 1}, {2, 2});
}

TEST_CASE("ranks that share layers are stages of a pipeline too") {
    for (const std::string name : {"gpt", "llama"}) {
        const Json config = tensor_config_of(name, 3);
        const WholeRun alone(name, config, 1);
        // The [.long] matrix has more shapes.
        check_alike(name, config, alone, {2, 1, 2, 3, 1, "zb-h1"}, {2, 2});
    }
    // The first and the last stage have unequal shares of the rows and classes of a tied table.
    const Json tied = tensor_config_of("gpt-tied", 3);
    check_alike("gpt-tied", tied, WholeRun("gpt-tied", tied, 1), {2, 1, 2, 1});
}

TEST_CASE("ranks that share positions train as one rank does", "[matrix]") {
    for (const std::string name : {"gpt", "llama"}) {
        const Json config = tensor_config_of(name, 3);
        const WholeRun alone(name, config, 1);
        check_alike(name, config, alone, {1, 1, 1, 3, 2}, {1, 1});
        // Ranks share positions only between split layers.
        Json shared = config;
        shared["dslaunch"]["tensor"]["share_positions"] = true;
        check_alike(name, shared, alone, {2, 1, 1, 1});
        if (name != "gpt") continue;
        check_alike(name, config, alone, {1, 1, 2, 1, 2});
        if (!whole_matrix()) continue;
        check_alike(name, config, alone, {1, 1, 1, 0, 2});
        const WholeRun pair(name, config, 2);
        check_alike(name, config, pair, {1, 2, 1, 2, 2});
    }
}

TEST_CASE("what is held out is evaluated by ranks that share layers or positions") {
    Json config = tensor_config_of("gpt", 4);
    config["dslaunch"]["eval_interval"] = 2;
    config["dslaunch"]["data"]["eval_fraction"] = 0.1;
    const WholeRun alone("gpt", config, 1);
    REQUIRE(alone.result.values_of("eval_loss").size() == 3);
    for (const Shape& shape :
         {Shape{2, 1, 1, 0}, Shape{2, 1, 1, 3}, Shape{2, 1, 2, 1}, Shape{1, 1, 1, 3, 2}}) {
        check_alike("gpt", config, alone, shape);
    }
    const TemporaryFolder folder;
    const auto trained = train_well(folder, ranks(2), "gpt", in_shape(config, {2, 1, 1, 0}));
    CHECK(trained.values_of("eval_samples") == alone.result.values_of("eval_samples"));
}

TEST_CASE("a last batch with fewer rows is shared as the others are") {
    for (const std::string name : {"gpt", "llama"}) {
        Json config = tensor_config_of(name, 2);
        config["train_micro_batch_size_per_gpu"] = 4;
        config["dslaunch"]["eval_interval"] = 2;
        config["dslaunch"]["data"]["eval_fraction"] = 0.01;
        const WholeRun alone(name, config, 1);
        const std::vector<double> samples = alone.result.values_of("eval_samples");
        REQUIRE(samples.size() == 2);
        REQUIRE(static_cast<int>(samples[0]) % 4 != 0);
        check_alike(name, config, alone, {2, 1, 1, 0});
        check_alike(name, config, alone, {1, 1, 1, 1, 2});
        config["dslaunch"]["tensor"]["share_positions"] = true;
        check_alike(name, config, alone, {2, 1, 1, 0});
    }
}

TEST_CASE("ranks that share layers or positions train in half precision as one rank does",
          "[matrix]") {
    // Sums in another order are rounded to 8 bits (bf16) or 11 bits (fp16). After three layers, a
    // loss differs by a few units of its last bit.
    struct Case {
        Json precision;
        double epsilon;
        std::vector<Shape> shapes;
        bool skips;
    };
    const auto fp16 = [](int scale_power) {
        return Json{
            {"fp16", {{"enabled", true}, {"initial_scale_power", scale_power}, {"hysteresis", 1}}}};
    };
    const std::vector<Shape> layers = {Shape{2, 1, 1, 0}, Shape{2, 1, 2, 1}};
    const std::vector<Shape> others = {Shape{2, 2, 1, 3}, Shape{1, 1, 1, 3, 2}};
    const auto chosen = [](const std::vector<Shape>& shapes, size_t one) {
        return whole_matrix() ? shapes : std::vector<Shape>{shapes[one]};
    };
    // The mean over half of the micro batches or positions has gradients twice as large. Ranks that
    // share samples or positions therefore overflow at half the scale; they are compared at a scale
    // without overflow.
    for (const auto& [precision, epsilon, shapes, skips] :
         {Case{Json{{"bf16", {{"enabled", true}}}}, std::ldexp(1.0, -8), chosen(layers, 0), false},
          Case{Json{{"bf16", {{"enabled", true}}}}, std::ldexp(1.0, -8), chosen(others, 1), false},
          Case{fp16(20), std::ldexp(1.0, -11), chosen(layers, 1), true},
          Case{fp16(14), std::ldexp(1.0, -11), chosen(others, 0), false}}) {
        Json config = tensor_config_of("gpt", 9);
        config.update(precision);
        const TemporaryFolder alone_folder;
        const auto alone = train_well(alone_folder, ranks(1), "gpt", config);
        for (const Shape& shape : shapes) {
            INFO(shape.text() << " " << precision.dump());
            const TemporaryFolder folder;
            Json shared = in_shape(config, shape);
            if (shape.data > 1) shared["gradient_accumulation_steps"] = kMicroSteps / shape.data;
            const auto trained = train_well(folder, ranks(shape.ranks()), "gpt", shared);
            const std::vector<double> expected = alone.losses();
            const std::vector<double> found = trained.losses();
            REQUIRE(found.size() == expected.size());
            for (size_t i = 0; i < found.size(); ++i)
                CHECK(std::abs(found[i] - expected[i]) < 4 * epsilon * expected[i]);
            // All ranks of a group skip the same steps, in which gradients are too large. Under
            // fp16 some steps are skipped, yet the model is trained.
            const std::vector<double> scales = trained.values_of("loss_scale");
            CHECK(scales == alone.values_of("loss_scale"));
            if (skips) CHECK(scales.back() < scales.front());
            if (skips) CHECK(scales.back() == scales[scales.size() - 3]);
            const auto weights = read_safetensors(folder.path() + "/out/model.safetensors");
            for (const auto& [name, stored] :
                 read_safetensors(alone_folder.path() + "/out/model.safetensors")) {
                CHECK(weights.at(name).shape == stored.shape);
                CHECK(weights.at(name).dtype == stored.dtype);
            }
        }
    }
}

TEST_CASE("hosts on which the ranks of a group would add up differently are refused") {
    for (const std::vector<int>& slots : {std::vector<int>{3, 3}, {1, 3}}) {
        const TemporaryFolder folder;
        const TrainResult result = train(folder, hosts(folder, slots), fixture_archive("gpt"),
                                         in_shape(tensor_config_of("gpt", 2), {2, 1, 1, 1}));
        INFO(result.err);
        CHECK(result.code == 65);
        CHECK(result.err.find("give each host a multiple of 2 slots") != std::string::npos);
    }
}

TEST_CASE("a checkpoint of shares goes on in any shape, and in its own to the bit", "[matrix]") {
    Json whole = tensor_config_of("gpt", 4);
    whole["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}};
    const auto until = [&](int steps) {
        Json config = whole;
        config["dslaunch"]["steps"] = steps;
        return config;
    };
    std::vector<Shape> shapes = {{1, 1, 1, 0}, {2, 1, 2, 3}, {1, 1, 1, 3, 2}};
    if (whole_matrix()) shapes.insert(shapes.begin() + 1, {{2, 1, 1, 1}, {4, 1, 1, 2}});
    for (size_t from = 0; from < shapes.size(); ++from) {
        const Shape& before = shapes[from];
        const Shape& after = shapes[(from + 1) % shapes.size()];
        INFO("from " << before.text() << " to " << after.text());
        const TemporaryFolder straight;
        const std::vector<double> expected =
            train_well(straight, ranks(before.ranks()), "gpt", in_shape(whole, before)).losses();
        const TemporaryFolder folder;
        train_well(folder, ranks(before.ranks()), "gpt", in_shape(until(2), before));
        const TemporaryFolder own;
        std::filesystem::copy(folder.path(), own.path(), std::filesystem::copy_options::recursive);
        std::vector<std::string> where = ranks(before.ranks());
        where.push_back("--resume");
        const auto same = train_well(own, where, "gpt", in_shape(whole, before)).losses();
        CHECK(std::vector(same.end() - 2, same.end()) ==
              std::vector(expected.end() - 2, expected.end()));
        CHECK((content_of(own.path() + "/out/model.safetensors") ==
               content_of(straight.path() + "/out/model.safetensors")));
        where = ranks(after.ranks());
        where.push_back("--resume");
        const auto other = train_well(folder, where, "gpt", in_shape(whole, after)).losses();
        // Adam moves a weight by 1e-3, whatever the size of the gradient; see pipeline_test.cpp.
        for (size_t i = 1; i <= 2; ++i)
            CHECK(std::abs(other[other.size() - i] - expected[expected.size() - i]) < 1e-5);
    }
}

TEST_CASE("what cannot be shared is refused before anything runs") {
    struct Refused {
        const char* model;
        const char* key;
        Json value;
        int code;
        const char* says;
    };
    const std::vector<Refused> cases = {
        {"gpt", "tensor", {{"size", 3}}, 65, "tensor 3"},
        {"gpt", "tensor", {{"size", 2}, {"rules", {{"*.nope", "row"}}}}, 65, "*.nope"},
        {"gpt", "tensor", {{"size", 2}, {"rules", {{"*", "diagonal"}}}}, 65, "diagonal"},
        {"gpt", "sequence", {{"size", 4}}, 65, "sequence 4"},
        {"interface", "tensor", {{"size", 2}}, 66, "takes a whole module as an argument"},
        {"convnet", "tensor", {{"size", 2}}, 66, "split"},
    };
    for (const Refused& refused : cases) {
        INFO(refused.model << ": " << refused.key << " " << refused.value.dump());
        const TemporaryFolder folder;
        Json config = tensor_config_of(refused.model, 2);
        config["dslaunch"][refused.key] = refused.value;
        const TrainResult result = train(folder, ranks(2), fixture_archive(refused.model), config);
        INFO(result.err);
        CHECK(result.code == refused.code);
        CHECK(result.err.find(refused.says) != std::string::npos);
    }
}

TEST_CASE("positions of a mixture of experts are not shared, and the reason is told") {
    const TemporaryFolder folder;
    Json config;
    config["train_micro_batch_size_per_gpu"] = 2;
    config["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}};
    config["dslaunch"] = {
        {"steps", 1},
        {"data", {{"train", fixture_path("lora/llama/tokens.u16.bin")}, {"context", 16}}},
        {"sequence", {{"size", 2}}}};
    const TrainResult result = train(folder, ranks(2), fixture_path("huggingface/mixtral"), config);
    INFO(result.err);
    CHECK(result.code == 65);
    CHECK(result.err.find("as in a mixture of experts") != std::string::npos);
}

TEST_CASE("ranks share layers over pipelines, data, ZeRO and schedules", "[.long]") {
    // Tensor groups of one rank are here only for models with a tied table: two stages add up its
    // gradients, so the bits are not fixed. Other models with groups of one are in
    // pipeline_test.cpp. To test one model: -c NAME.
    const std::map<std::string, std::vector<int>> sizes = {
        {"gpt", {2}}, {"llama", {2}}, {"gpt2", {1, 2}}, {"qwen2", {1, 2}}, {"bert", {1}}};
    for (const auto& [name, tensors] : sizes) {
        DYNAMIC_SECTION(name) {
            const Json config = tensor_config_of(name, 3);
            for (const int data : {1, 2}) {
                const WholeRun alone(name, config, data);
                for (const int tensor : tensors)
                    for (const ScheduleShape& shape : schedule_shapes())
                        for (int zero = 0; zero <= 3; ++zero)
                            check_alike(name, config, alone,
                                        {tensor, data, shape.stages, zero, 1, shape.schedule});
            }
        }
    }
}

}  // namespace dslaunch::test
