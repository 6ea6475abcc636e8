// Models trained here are read by stock transformers. Needs the environment of tools/peers.sh:
// DSL_PEERS, or the place where `make bench` makes it.
#include <cstdlib>

#include "fixture_runs.h"
#include "support/skip.h"

namespace dslaunch::test {
namespace {

std::string peers_python() {
    const auto variable = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value == nullptr ? "" : value);
    };
    std::string peers = variable("DSL_PEERS");
    if (peers.empty()) {
        const std::string cache = variable("XDG_CACHE_HOME");
        peers = (cache.empty() ? variable("HOME") + "/.cache" : cache) + "/dslaunch/peers";
    }
    const std::string python = peers + "/bin/python";
    return std::filesystem::exists(python) ? python : "";
}

std::string run_well(const TemporaryFolder& folder, const std::vector<std::string>& words) {
    JobProcess process(folder, words);
    const int code = process.wait();
    INFO(words.front() << " " << words[1] << "\n" << process.out() << process.err());
    REQUIRE(code == 0);
    return process.out();
}

}  // namespace

TEST_CASE("stock transformers loads what was exported, with equal logits", "[.long]") {
    const std::string python = peers_python();
    if (python.empty())
        return report_skipped("stock transformers reading an export",
                              "there is no Python environment of tools/peers.sh in DSL_PEERS");
    const std::string script =
        std::string(test::source_dir()) + "/tests/parity/transformers_load.py";
    for (const std::string name : {"gpt2", "llama", "qwen2"}) {
        INFO(name);
        const TemporaryFolder folder;
        const auto in = [&](const char* what) { return folder.path() + "/" + what; };
        const Json config = fixture_config(facts_of(name), 1, 3);
        auto where = ranks(2);
        where.insert(where.end(), {"--save-interval", "3"});
        train_well(folder, where, name, config);
        run_well(folder, {python, script, "config", name, in("config")});
        run_well(folder, {kDslaunch, "ckpt", "export", in("out"), in("hf"), "--format", "hf",
                          "--strip-prefix", "model.", "--config-from", in("config")});
        run_well(folder, {kDslaunch, "ckpt", "export", in("out"), in("out.pt"), "--format",
                          "torchscript", "--model", archive_of(name)});
        const std::string said =
            run_well(folder, {python, "-W", "ignore", script, "check", in("hf"), in("out.pt")});
        CHECK(said.find("EQUAL") != std::string::npos);
        std::printf("%s: %s", name.c_str(), said.substr(said.find("EQUAL")).c_str());
    }
}

}  // namespace dslaunch::test
