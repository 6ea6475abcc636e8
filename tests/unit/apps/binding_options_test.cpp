#include "base/error.h"
#include "launcher/options/parse_run.h"
#include "launcher/options/run_options.h"
#include "launcher/run/build_job.h"
#include "launcher/run/dry_run.h"
#include "support/catch.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::launcher;

namespace {

JobSpec job(std::vector<std::string> words) {
    words.emplace_back("program");
    const Machine machine{"here", 0, "/", "/proc/nowhere", "", {}, {}};
    return build_job(parse_run_options(words), machine).spec;
}

std::string refusal(const std::vector<std::string>& words) {
    return test::error_of(ExitCode::kUsage, [&] { static_cast<void>(job(words)); });
}

}  // namespace

TEST_CASE("binding is asked for as dslaunch, deepspeed and torchrun write it") {
    struct Row {
        std::vector<std::string> words;
        BindMode mode;
        const char* core_list;
    };
    const Row rows[] = {
        {{}, BindMode::kAuto, ""},
        {{"--bind", "none"}, BindMode::kNone, ""},
        {{"--bind", "core"}, BindMode::kCore, ""},
        {{"--bind=numa"}, BindMode::kNuma, ""},
        {{"--bind_cores_to_rank"}, BindMode::kCore, ""},
        {{"--bind_cores_to_rank", "--bind_core_list", "4-5,0,1"}, BindMode::kCore, "0-1,4-5"},
        {{"--bind_core_list", "3"}, BindMode::kCore, "3"},
        {{"--numa-binding", "node", "--bind", "numa"}, BindMode::kNuma, ""},
        {{"--numa-binding", "socket"}, BindMode::kSocket, ""},
        {{"--numa_binding=exclusive"}, BindMode::kExclusive, ""},
        {{"--numa-binding", "core-complex", "--bind-core-list", "0-7"},
         BindMode::kCoreComplex,
         "0-7"},
    };
    for (const Row& row : rows) {
        const BindingRequest binding = job(row.words).binding;
        INFO(bind_mode_name(row.mode) << " " << row.core_list);
        CHECK(binding.mode == row.mode);
        CHECK(binding.core_list == row.core_list);
    }
    CHECK_THAT(refusal({"--bind", "cores"}),
               Catch::Contains("`cores` is none of none, core, numa"));
    CHECK_THAT(refusal({"--numa-binding", "core"}), Catch::Contains("node, socket, exclusive"));
    CHECK_THAT(refusal({"--bind_core_list", "0-"}), Catch::Contains("not a list of processors"));
    CHECK_THAT(refusal({"--bind", "none", "--bind_cores_to_rank"}), Catch::Contains("contradicts"));
    CHECK_THAT(refusal({"--bind", "none", "--bind_core_list", "1"}),
               Catch::Contains("cannot be used together"));
}

TEST_CASE("a dry run shows places that it knows, and says who chooses the others") {
    const JobSpec spec = job({"--bind", "core", "--num_gpus", "2", "--device", "cpu"});
    const std::vector<RankPlace> places = {{{0, 4}, 1, -1}, {{1, 5}, 1, 1}};
    const std::string text = dry_run_text(spec, places);
    CHECK_THAT(text, Catch::Contains("binding core:"));
    CHECK_THAT(text, Catch::Contains("    0  processors 0,4, 1 thread"));
    CHECK_THAT(text, Catch::Contains("    1  processors 1,5, 1 thread, memory of node 1"));
    CHECK_THAT(dry_run_json(spec, places), Catch::Contains("\"processors\": [1, 5]") &&
                                               Catch::Contains("\"memory_node\": null"));
    CHECK_THAT(dry_run_text(spec), Catch::Contains("binding core: chosen on each host\n"));
    CHECK_THAT(dry_run_text(job({"--device", "cpu"})), !Catch::Contains("binding"));
}
