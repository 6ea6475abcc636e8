// Engines on several ranks, started by dslaunch: this program is its own rank. What ranks agree on,
// what they refuse, and a resume on another number of ranks.
#include <cstdlib>
#include <filesystem>
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

constexpr const char* kPart = "DSL_TEST_PART";
constexpr const char* kFolder = "DSL_TEST_FOLDER";

// Trains two steps with equal rows on all ranks; the last rank asks for the end in the second.
void take_steps(const EngineOptions& options, const Ranks& ranks) {
    Engine engine = Engine::open(options, ranks);
    CHECK(engine.data_ranks() == ranks.world_size);
    CHECK(engine.data_rank() == ranks.rank);
    for (int step = 1; step <= 2; ++step) {
        if (step == 2 && ranks.rank + 1 == ranks.world_size) engine.ask_to_end();
        const StepResult result = engine.train_batch(kRows);
        CHECK(result.loss == Approx(line_loss(step)).epsilon(1e-5));
        CHECK(result.should_end == (step == 2));
        CHECK(engine.rows_seen() == 4 * step * ranks.world_size);
    }
    CHECK(engine.evaluate(kRows) == Approx(line_loss(3)).epsilon(1e-5));
    engine.save_checkpoint();
    engine.close();
}

// The second rank saves while the first trains.
void differ_in_calls(const EngineOptions& options, const Ranks& ranks) {
    Engine engine = Engine::open(options, ranks);
    CHECK(code_of(
              [&] {
                  if (ranks.rank == 0) static_cast<void>(engine.train_batch(kRows));
                  if (ranks.rank == 1) engine.save_checkpoint();
              },
              "save_checkpoint") == ExitCode::kDiverged);
}

void differ_in_settings(EngineOptions options, const Ranks& ranks) {
    options.set = {ranks.rank == 0 ? "optimizer.params.lr=0.5" : "optimizer.params.lr=0.25"};
    CHECK(code_of([&] { static_cast<void>(Engine::open(options, ranks)); },
                  "rank 1 has `optimizer.params.lr 0.25` in its config, but rank 0 has `") ==
          ExitCode::kDiverged);
}

void differ_in_models(EngineOptions options, const Ranks& ranks) {
    if (ranks.rank == 1) options.model = options.output + "/../other/line.pt";
    CHECK(code_of([&] { static_cast<void>(Engine::open(options, ranks)); }, "another file than") ==
          ExitCode::kDiverged);
}

// Starts this program as the ranks of a job that does PART in FOLDER, with OPTIONS of dslaunch.
void run_ranks(const TemporaryFolder& folder, const std::string& part, const std::string& options) {
    const std::string own = fs::read_symlink("/proc/self/exe").string();
    const std::string log = part + ".log";
    const std::string command = std::string(kPart) + "=" + part + " " + kFolder + "='" +
                                folder.path() + "' '" + kDslaunch + "' --device cpu " + options +
                                " '" + own + "' '[.child]' >'" + folder.path() + "/" + log +
                                "' 2>&1";
    const int status = std::system(command.c_str());
    INFO(folder.read(log));
    CHECK(status == 0);
}

}  // namespace

TEST_CASE("a rank of a job that another case starts", "[.child]") {
    const char* const part = std::getenv(kPart);
    const char* const place = std::getenv(kFolder);
    REQUIRE(part != nullptr);
    REQUIRE(place != nullptr);
    const std::string folder = place;
    const Ranks ranks = ranks_from_environment();
    EngineOptions options = line_options(folder);
    options.output = folder + "/out";
    options.time_limit = std::chrono::minutes(1);
    const std::string name = part;
    if (name == "steps") take_steps(options, ranks);
    if (name == "calls") differ_in_calls(options, ranks);
    if (name == "settings") differ_in_settings(options, ranks);
    if (name == "models") differ_in_models(options, ranks);
}

TEST_CASE(
    "two ranks end together in a folder that dslaunch writes to, and one rank goes on there") {
    const Line line;
    EngineOptions options = line.options();
    options.output = line.folder.path() + "/out";
    run_ranks(line.folder, "steps", "--num_gpus 2 --output '" + options.output + "'");
    CHECK(fs::exists(options.output + "/logs/rank-1.log"));
    const std::string metrics = line.folder.read("out/metrics.jsonl");
    CHECK(metrics.find("\"step\": 2") != std::string::npos);
    options.resume = "auto";
    Engine engine = Engine::open(options, {});
    CHECK(engine.step() == 2);
    CHECK(engine.rows_seen() == 16);
    CHECK(engine.train_batch(kRows).loss == Approx(line_loss(3)).epsilon(1e-5));
    CHECK(engine.rows_seen() == 20);
}

TEST_CASE("ranks that make other calls, or have another config or model, are named") {
    const Line line;
    run_ranks(line.folder, "calls", "--num_gpus 2");
    run_ranks(line.folder, "settings", "--num_gpus 2");
    fs::create_directory(line.folder.path() + "/other");
    fs::create_directory(line.folder.path() + "/out");
    write_line(line.folder.path() + "/other", 1);
    std::ofstream(line.folder.path() + "/hostfile") << "first slots=1\nsecond slots=1\n";
    run_ranks(line.folder, "models",
              "--launcher local --hostfile '" + line.folder.path() + "/hostfile'");
}
