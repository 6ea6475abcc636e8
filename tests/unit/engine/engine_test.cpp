// An engine in one process: what a step computes, in closed form, and what it refuses and leaves
// alone. Several ranks are in engine_ranks_test.cpp, and losses beside dslaunch's in
// tests/cluster/packages/library_test.cpp.
#include "dslaunch/engine.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "support/catch.h"
#include "support/places.h"
#include "support/temporary_folder.h"
#include "unit/engine/line_model.h"

using namespace dslaunch;
using namespace dslaunch::test;

TEST_CASE("an engine descends as the closed form says, and evaluates without a change") {
    const Line line;
    Engine engine = Engine::open(line.options(), {});
    CHECK(engine.rows_per_step() == 4);
    CHECK(engine.micro_rows() == 2);
    CHECK(engine.data_ranks() == 1);
    double distance = -2;
    for (int step = 1; step <= 3; ++step) {
        const double expected = 7.5 * distance * distance;
        // Powers of two apart from 7.5 and 1.75, so fp32 rounds little.
        CHECK(engine.evaluate(kRows) == Approx(expected).epsilon(1e-6));
        const StepResult result = engine.train_batch(kRows);
        CHECK(result.step == step);
        CHECK(result.loss == Approx(expected).epsilon(1e-6));
        CHECK(result.learning_rate == 0.125);
        CHECK_FALSE(result.skipped);
        CHECK_FALSE(result.should_end);
        CHECK(engine.rows_seen() == 4 * step);
        distance *= kFactor;
    }
    engine.ask_to_end();
    CHECK(engine.train_batch(kRows).should_end);
    CHECK(engine.config_json().find("\"SGD\"") != std::string::npos);
    engine.close();
    engine.close();
    CHECK(code_of([&] { static_cast<void>(engine.train_batch(kRows)); }, "was closed") ==
          ExitCode::kUsage);
}

TEST_CASE("rows of another form are refused before anything is computed, and the engine goes on") {
    const Line line;
    Engine engine = Engine::open(line.options(), {});
    const at::Tensor x = kRows[0], y = kRows[1];
    const auto refuses = [&](const std::vector<at::Tensor>& rows, const char* part) {
        CHECK(code_of([&] { static_cast<void>(engine.train_batch(rows)); }, part) ==
              ExitCode::kInput);
    };
    refuses({x}, "got 1 tensor, but the example had 2");
    refuses({x.narrow(0, 0, 3), y.narrow(0, 0, 3)}, "got 3 rows, but a step takes 4");
    refuses({x, y.narrow(0, 0, 3)}, "argument 'y' has 3 rows, but 'x' has 4");
    refuses({x.view({2, 2}), y}, "but EngineOptions::example has");
    refuses({x.to(at::kComplexFloat), y}, "sparse or complex");
    refuses({at::Tensor(), y}, "is not defined");
    refuses({at::zeros({}), y}, "single number");
    refuses({at::zeros({4, 0}), y}, "is empty");
    CHECK(code_of([&] { engine.save_checkpoint(); }, "output") == ExitCode::kUsage);
    CHECK(engine.step() == 0);
    // Types that rows of files may have, not contiguous, and rows that are overwritten at once.
    at::Tensor twice = at::zeros({4, 2}, at::kDouble);
    twice.select(1, 0).copy_(x.view({4}));
    const at::Tensor wide = twice.narrow(1, 0, 1), whole = y.to(at::kInt);
    CHECK(engine.train_batch({wide, whole}).loss == Approx(30.0));
    twice.zero_();
    CHECK(engine.train_batch({x.to(at::kHalf), y}).loss == Approx(30 * kFactor * kFactor));
}

TEST_CASE("the caller's random numbers and modes of LibTorch stay as they were") {
    TemporaryFolder folder;
    std::ofstream(folder.path() + "/config.json") << R"({"train_micro_batch_size_per_gpu": 2})";
    EngineOptions options;
    options.model = fixture_path("models/gpt-dropout.pt");
    options.config = folder.path() + "/config.json";
    options.threads = 1;
    const at::Tensor tokens = at::zeros({2, 8}, at::kLong);
    options.example = {tokens, tokens};
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(7);
    const at::Tensor expected = at::rand({3});
    generator.set_current_seed(7);
    std::optional<double> loss;
    for (const bool inference : {false, true}) {
        const c10::InferenceMode mode(inference);  // it sets the grad mode too
        const at::NoGradGuard no_grad;
        const at::Tensor tokens = at::zeros({2, 8}, at::kLong);
        Engine engine = Engine::open(options, {});
        const double first = engine.train_batch({tokens, tokens}).loss;
        static_cast<void>(engine.evaluate({tokens, tokens}));
        CHECK(first == loss.value_or(first));  // the guards change no result
        loss = first;
        CHECK_FALSE(at::GradMode::is_enabled());
        CHECK(c10::InferenceMode::is_enabled() == inference);
        // Tokens that the table has no row for.
        CHECK(code_of(
                  [&] {
                      static_cast<void>(
                          engine.train_batch({at::full({2, 8}, 100'000, at::kLong), tokens}));
                  },
                  "row 0: 100000 is not a valid row of") == ExitCode::kInput);
    }
    CHECK(at::rand({3}).equal(expected));
}

TEST_CASE("a second engine is refused while there is one") {
    const Line line;
    {
        Engine first = Engine::open(line.options(), {});
        CHECK(code_of([&] { static_cast<void>(Engine::open(line.options(), {})); }, "close()") ==
              ExitCode::kUsage);
        Engine moved = std::move(first);
        CHECK(moved.train_batch(kRows).loss == Approx(30.0));
        CHECK(code_of([&] { static_cast<void>(first.step()); }, "moved from") == ExitCode::kUsage);
    }
    Engine second = Engine::open(line.options(), {});
    second.close();
    Engine third = Engine::open(line.options(), {});
}

TEST_CASE("a process that srun or mpirun started as one of several does not train alone") {
    for (const auto& [name, launcher] : {std::pair{"SLURM_STEP_NUM_TASKS", "srun started 4"},
                                         std::pair{"OMPI_COMM_WORLD_SIZE", "mpirun started 4"}}) {
        CHECK(ranks_from_environment().world_size == 1);
        ::setenv(name, "4", 1);
        CHECK(code_of([] { static_cast<void>(ranks_from_environment()); }, launcher) ==
              ExitCode::kSetup);
        ::setenv(name, "1", 1);
        CHECK(ranks_from_environment().world_size == 1);
        ::unsetenv(name);
    }
}

// The last case of the program: a broken engine keeps its memory, and stays the only one of the
// process.
TEST_CASE("a failed step breaks the engine, which says why again and lets the process go on") {
    const Line line;
    EngineOptions options = line.options();
    const std::string disk = line.folder.path() + "/disk";
    std::filesystem::create_directory(disk);
    options.set = {"optimizer.type=AdamW", "zero_optimization.stage=3",
                   "zero_optimization.offload_optimizer.device=nvme",
                   "zero_optimization.offload_optimizer.nvme_path=" + disk};
    Engine engine = Engine::open(options, {});
    CHECK_FALSE(std::filesystem::is_empty(disk));
    const at::Tensor nan = at::full({4, 1}, std::numeric_limits<float>::quiet_NaN());
    CHECK(code_of([&] {
              static_cast<void>(engine.train_batch({nan, nan}));
          }) == ExitCode::kDiverged);
    CHECK(std::filesystem::is_empty(disk));  // the process may live on, or end at any time
    CHECK(code_of([&] { static_cast<void>(engine.train_batch(kRows)); }) == ExitCode::kDiverged);
    CHECK(code_of([&] { engine.close(); }) == ExitCode::kDiverged);
}
