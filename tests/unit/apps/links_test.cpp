// Links with the names of DeepSpeed's programs: the meaning of each command line here, and how
// links are made and removed.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "launcher/links/deepspeed_names.h"
#include "launcher/subcommands.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

std::string meaning(const std::string& program, const Words& words) {
    return join(meant_words(program, words), "|");
}

std::string links_refusal(const std::string& program, const Words& words) {
    return error_of(ExitCode::kUsage, [&] { (void)meant_words(program, words); });
}

std::string text_of(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a command line of a DeepSpeed program becomes one of dslaunch") {
    const struct {
        const char* program;
        Words words;
        const char* meaning;
    } cases[] = {
        {"deepspeed", {"--num_gpus", "2", "t.py", "--x"}, "run|--num_gpus|2|t.py|--x"},
        {"/opt/bin/ds", {"top"}, "run|top"},
        {"deepspeed.pt", {"t.py"}, "run|t.py"},
        {"dslaunch", {"ps"}, "ps"},
        {"anything", {"--help"}, "--help"},
        {"zero_to_fp32.py", {".", "out", "-t", "step"}, "zero_to_fp32|.|out|-t|step"},
        {"ds_report", {}, "report"},
        {"dsr", {"--hide_operator_status", "--hide_errors_and_warnings"}, "report"},
        {"ds_report", {"-h"}, "report|--help"},
        {"ds_ssh",
         {"-f", "/job/hostfile", "hostname"},
         "exec|--hostfile|/job/hostfile|--stream|--chdir|/|--|sh|-c|cd; hostname"},
        {"ds_ssh",
         {"-f", "hosts", "df -h | tail", "-1"},
         "exec|--hostfile|hosts|--stream|--chdir|/|--|sh|-c|cd; df -h | tail -1"},
        {"ds_ssh",
         {"-fhosts", "ls", "-f"},
         "exec|--hostfile|hosts|--stream|--chdir|/|--|sh|-c|cd; ls -f"},
        {"ds_ssh", {"-h"}, "exec|--help"},
        {"ds_bench", {}, "health"},
        {"ds_bench",
         {"--all-reduce", "--scan", "--maxsize", "20", "--trials", "5"},
         "health|--sizes=4096,65536,1048576"},
        {"ds_bench",
         {"--maxsize=26", "--backend", "nccl"},
         "health|--sizes=4096,65536,1048576,67108864|--backend=nccl"},
        {"ds_io",
         {"--folder", "/nvme", "--io_size", "400M", "--read"},
         "io-bench|/nvme|--no-store|--size=400M"},
        {"ds_io",
         {"--folder_to_device_mapping", "/nvme:0", "--io-size=1G", "--block_size", "8M",
          "--queue_depth", "128", "--loops", "5", "--engine", "aio_handle", "--multi_process", "1"},
         "io-bench|/nvme|--no-store|--size=1G|--blocks=8M|--depths=128|--turns=5"},
        {"ds_nvme_tune",
         {"--nvme_dir", "/nvme", "--loops", "2", "--log_dir", "logs"},
         "io-bench|/nvme|--turns=2"},
        {"ds_elastic",
         {"-c", "ds_config.json", "-w", "64"},
         "config|check|ds_config.json|--world-size=64"},
        {"ds_to_universal",
         {"--input_folder", "run/global_step5", "--output_folder", "out", "--num_merge_workers",
          "4"},
         "ckpt|import|run/global_step5|out"},
    };
    for (const auto& [program, words, expected] : cases) {
        CAPTURE(program, join(words, " "));
        CHECK(meaning(program, words) == expected);
    }
    for (const DeepSpeedName& row : deepspeed_names()) {
        INFO(row.name);
        const std::string command(row.meaning.substr(0, row.meaning.find_first_of(" :,")));
        CHECK(find_subcommand(command) != nullptr);
        CHECK(row.meaning.size() < 80);
    }
}

TEST_CASE("an option without a meaning here is refused with what to use") {
    const struct {
        const char* program;
        Words words;
        const char* refusal;
    } cases[] = {
        {"ds_io", {"--folder", "/nvme", "--gpu"}, "ds_io: --gpu is refused: io-bench measures"},
        {"ds_io",
         {"--folder", "a", "--engine", "torch_io"},
         "ds_io: --engine: the engine `torch_io` measures"},
        {"ds_io", {"--folder", "a", "--multi_process", "4"}, "ds_io: --multi_process: io-bench"},
        {"ds_io", {"--io_size", "1G"}, "ds_io: --folder DIR is missing"},
        {"ds_io", {"--folder", "a", "--folder_to_device_mapping", "b:1"}, "one disk is measured"},
        {"ds_io", {"--folder", "a", "--blok_size", "1M"}, "did you mean `--block-size`?"},
        {"ds_nvme_tune", {}, "ds_nvme_tune: --nvme_dir DIR is missing"},
        {"ds_nvme_tune", {"--nvme_dir", "a", "b"}, "unexpected `b`"},
        {"ds_nvme_tune", {"--nvme_dir", "a", "--sweep_config", "f"}, "--blocks 1M,8M --depths"},
        {"ds_ssh", {}, "ds_ssh: a command is missing"},
        {"ds_ssh", {"-f"}, "ds_ssh: -f needs a hostfile"},
        {"ds_ssh", {"-w", "h1", "ls"}, "`dslaunch exec` has more"},
        {"ds_bench", {"--backend", "mpi"}, "`mpi` is not supported"},
        {"ds_bench", {"--maxsize", "4G"}, "`4G` is not a power of two"},
        {"ds_elastic", {"-w", "4"}, "ds_elastic: --config FILE is missing"},
        {"ds_to_universal", {"--input_folder", "a"}, "--output_folder DIR"},
    };
    for (const auto& [program, words, expected] : cases) {
        CAPTURE(program, join(words, " "));
        CHECK_THAT(links_refusal(program, words), Catch::Contains(expected));
    }
}

TEST_CASE("links are made, replaced only with --force, and removed without touching others") {
    const TemporaryFolder folder, output;
    const fs::path bin = folder.path();
    const auto run = [&](Words words) {
        words.insert(words.begin(), {test::kDslaunch, "links"});
        JobProcess process(output, words);
        const int code = process.wait();
        return std::to_string(code) + " " + process.out() + process.err();
    };
    CHECK_THAT(run({}), Catch::StartsWith("0 name ") && Catch::Contains("ds_nvme_tune"));
    CHECK_THAT(run({"--remove"}), Catch::StartsWith("64 ") && Catch::Contains("links DIR"));
    CHECK_THAT(run({bin / "none"}), Catch::StartsWith("66 ") && Catch::Contains("not a folder"));
    CHECK_THAT(run({bin, "ds_rport"}), Catch::StartsWith("64 ") && Catch::Contains("`ds_report`"));
    CHECK_THAT(run({bin}), Catch::StartsWith("0 ") && Catch::Contains("is not in PATH"));
    const fs::path spaced = bin / "a b";
    fs::create_directory(spaced);
    CHECK_THAT(run({spaced}), Catch::Contains("export PATH='" + spaced.string() + "':$PATH"));
    fs::remove_all(spaced);
    for (const DeepSpeedName& row : deepspeed_names())
        CHECK(fs::equivalent(bin / row.name, test::kDslaunch));
    CHECK_THAT(run({bin}), Catch::StartsWith("0 "));  // the links exist already
    JobProcess started(output, {bin / "ds_ssh", "-f", bin / "hosts", "ls"});
    CHECK(started.wait() == 64);
    CHECK_THAT(started.err(),
               Catch::StartsWith("dslaunch: ds_ssh means: dslaunch exec --hostfile "));

    // A file that dslaunch has not made.
    fs::remove(bin / "ds_report");
    std::ofstream(bin / "ds_report") << "mine";
    fs::remove(bin / "ds");
    CHECK_THAT(run({bin}), Catch::StartsWith("66 ") &&
                               Catch::Contains("ds_report: already exists; nothing was"));
    CHECK(!fs::exists(bin / "ds"));  // nothing was changed
    CHECK(text_of(bin / "ds_report") == "mine");
    CHECK_THAT(run({bin, "ds"}), Catch::StartsWith("0 "));
    CHECK_THAT(run({bin, "--remove"}), Catch::StartsWith("0 ") &&
                                           Catch::Contains("11 links removed") &&
                                           Catch::Contains("ds_report"));
    CHECK(text_of(bin / "ds_report") == "mine");
    CHECK(!fs::exists(fs::symlink_status(bin / "deepspeed")));
    CHECK_THAT(run({bin, "ds_report", "--force"}), Catch::StartsWith("0 "));
    CHECK(fs::is_symlink(bin / "ds_report"));

    // A folder is never replaced. A link whose program is gone can be removed.
    fs::create_directory(bin / "ds_io");
    CHECK_THAT(run({bin, "--force"}), Catch::StartsWith("66 ") && Catch::Contains("ds_io"));
    fs::create_symlink(bin / "gone" / "dslaunch", bin / "ds_bench");
    CHECK_THAT(run({bin, "--remove", "ds_bench"}), Catch::Contains("1 link removed"));
    CHECK(!fs::exists(fs::symlink_status(bin / "ds_bench")));
}
