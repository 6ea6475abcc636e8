// Runs of an engine in a folder: checkpoints, resumes, half precision and adapters, on one rank.
#include <ATen/ops/zeros.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "dslaunch/engine.h"
#include "support/catch.h"
#include "support/places.h"
#include "support/temporary_folder.h"
#include "unit/engine/line_model.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

// Takes steps up to LAST, and saves after each if SAVES. Checks each loss.
void train_to(Engine& engine, int64_t last, bool saves) {
    while (engine.step() < last) {
        const StepResult result = engine.train_batch(kRows);
        CHECK(result.loss == Approx(line_loss(result.step)).epsilon(1e-5));
        if (saves) engine.save_checkpoint(/*waits=*/result.step == last);
    }
}

}  // namespace

TEST_CASE("a run goes on from its newest checkpoint, or from a named one with later ones aside") {
    const Line line;
    EngineOptions options = line.options();
    options.output = line.folder.path() + "/out";
    const std::string saved = options.output + "/checkpoints/step-";
    {
        Engine engine = Engine::open(options, {});
        train_to(engine, 4, /*saves=*/true);
        engine.close();
    }
    CHECK(code_of([&] { static_cast<void>(Engine::open(options, {})); }, "--resume") ==
          ExitCode::kCheckpoint);
    options.resume = saved + "7";
    CHECK(code_of([&] { static_cast<void>(Engine::open(options, {})); }) == ExitCode::kCheckpoint);
    CHECK(fs::exists(saved + "4"));

    options.resume = saved + "2";
    {
        Engine engine = Engine::open(options, {});
        CHECK(engine.step() == 2);
        CHECK(engine.rows_seen() == 8);
        CHECK(fs::exists(saved + "4"));  // a program may only evaluate
        train_to(engine, 3, /*saves=*/false);
        CHECK_FALSE(fs::exists(saved + "4"));
        engine.close();
    }
    options.resume = "auto";
    {
        Engine engine = Engine::open(options, {});
        CHECK(engine.step() == 2);  // not 4, which the run above left
        train_to(engine, 5, /*saves=*/true);
        engine.export_weights();
    }
    CHECK(fs::exists(options.output + "/model.safetensors"));
    Engine engine = Engine::open(options, {});
    CHECK(engine.step() == 5);
}

TEST_CASE(
    "a step whose gradients overflow in fp16 is skipped, and the scale falls until one fits") {
    const Line line(R"(, "fp16": {"enabled": true, "initial_scale_power": 32, "hysteresis": 1})");
    Engine engine = Engine::open(line.options(), {});
    StepResult result = engine.train_batch(kRows);
    CHECK(result.skipped);
    CHECK(result.loss_scale == std::pow(2.0, 32));
    while (result.skipped && result.step < 40) {
        CHECK(result.loss == Approx(30));  // nothing has changed
        result = engine.train_batch(kRows);
    }
    CHECK_FALSE(result.skipped);
    CHECK(result.loss_scale < std::pow(2.0, 16));
    CHECK(result.loss == Approx(30));
    CHECK(engine.evaluate(kRows) == Approx(30 * kFactor * kFactor).epsilon(0.01));
    CHECK(engine.rows_seen() == 4 * result.step);
}

TEST_CASE("with LoRA an engine trains and writes adapters only") {
    TemporaryFolder folder;
    std::ofstream(folder.path() + "/config.json") << R"({
        "train_micro_batch_size_per_gpu": 2, "dslaunch": {"lora": {"r": 2}},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";
    EngineOptions options;
    options.model = fixture_path("models/gpt.pt");
    options.config = folder.path() + "/config.json";
    options.output = folder.path() + "/out";
    options.threads = 1;
    const at::Tensor tokens = at::zeros({2, 32}, at::kLong);
    options.example = {tokens, tokens};
    Engine engine = Engine::open(options, {});
    const double before = engine.evaluate({tokens, tokens});
    const StepResult first = engine.train_batch({tokens, tokens});
    CHECK(first.loss == Approx(before));  // new adapters change nothing
    for (int step = 2; step <= 3; ++step) static_cast<void>(engine.train_batch({tokens, tokens}));
    CHECK(engine.evaluate({tokens, tokens}) < before);
    engine.export_weights();
    CHECK(fs::exists(options.output + "/adapter/adapter_model.safetensors"));
    CHECK_FALSE(fs::exists(options.output + "/model.safetensors"));
}

TEST_CASE("weights of a Hugging Face folder are written with its config, and make a folder again") {
    TemporaryFolder folder;
    std::ofstream(folder.path() + "/config.json") << R"({"train_micro_batch_size_per_gpu": 2})";
    EngineOptions options;
    options.model = fixture_path("huggingface/llama");
    options.config = folder.path() + "/config.json";
    options.output = folder.path() + "/out";
    options.threads = 1;
    const at::Tensor tokens = at::zeros({2, 8}, at::kLong);
    options.example = {tokens, tokens};
    double trained = 0;
    {
        Engine engine = Engine::open(options, {});
        static_cast<void>(engine.train_batch({tokens, tokens}));
        trained = engine.evaluate({tokens, tokens});
        engine.export_weights();
    }
    CHECK(fs::exists(options.output + "/config.json"));
    options.model = options.output;
    options.output.clear();
    Engine engine = Engine::open(options, {});
    CHECK(engine.evaluate({tokens, tokens}) == Approx(trained).epsilon(1e-6));
}
