#include "launcher/links/deepspeed_names.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/byte_size.h"
#include "base/text/words.h"
#include "launcher/options/options.h"

namespace dslaunch::launcher {
namespace {

using Words = std::vector<std::string>;

// Translates the command line of a program of DeepSpeed: reads its options and collects the words
// of the dslaunch command.
class Translation {
  public:
    // NAME: the program, for messages.
    explicit Translation(std::string_view name) : name_(name) {}

    // Declares an option that becomes `OURS=VALUE`.
    Translation& becomes(std::string_view names, std::string_view value_name, std::string ours) {
        options_.push_back({names, value_name, "", [this, ours](const std::string& value) {
                                words_.push_back(fmt::format("{}={}", ours, value));
                            }});
        return *this;
    }

    // Declares an option. TAKE gets its value.
    Translation& taken(std::string_view names, std::string_view value_name,
                       std::function<void(const std::string&)> take) {
        options_.push_back({names, value_name, "", std::move(take)});
        return *this;
    }

    // Declares an option without effect. NAMES are all its names, such as "read,validate". The
    // option takes a value if VALUE_NAME is not empty. If IS_QUIET is false, a note names the
    // option when the user gives it.
    Translation& dropped(std::string_view names, std::string_view value_name,
                         bool is_quiet = false) {
        options_.push_back({names, value_name, "",
                            [this, names, is_quiet](const std::string&) {
                                if (!is_quiet) dropped_.push_back("--" + split(names, ',').front());
                            },
                            true});
        return *this;
    }

    // Declares an option that is refused. REASON tells why, and names an alternative.
    Translation& refused(std::string_view names, std::string_view value_name,
                         std::string_view reason) {
        options_.push_back({names, value_name, reason, {}});
        return *this;
    }

    // Reads WORDS. Returns false if they ask for help. Refuses words that are no options.
    bool read(std::span<const std::string> words) {
        bool asks = false;
        options_.push_back({"help,h", "", "", [&](const std::string&) { asks = true; }});
        try {
            static_cast<void>(parse_options(options_, words, [&](const std::string& word) -> bool {
                fail(ExitCode::kUsage,
                     "unexpected `{}`; --help shows the command of dslaunch that takes the place "
                     "of this program",
                     printable(word));
            }));
        } catch (const Error& error) {
            fail(error.code(), "{}: {}", name_, error.what());
        }
        options_.pop_back();
        if (!dropped_.empty())
            print_message(
                fmt::format("dslaunch: {}: without effect here: {}", name_, join(dropped_, ", ")));
        return !asks;
    }

    // Returns the words that becomes() has collected.
    [[nodiscard]] const Words& words() const { return words_; }

  private:
    std::string_view name_;
    std::vector<Option> options_;
    Words words_;
    Words dropped_;
};

Words with(Words words, const Words& further) {
    words.insert(words.end(), further.begin(), further.end());
    return words;
}

Words run_words(std::span<const std::string> words) {
    return with({"run"}, {words.begin(), words.end()});
}

Words fp32_words(std::span<const std::string> words) {
    return with({"zero_to_fp32"}, {words.begin(), words.end()});
}

Words report_words(std::span<const std::string> words) {
    Translation translation("ds_report");
    const bool runs = translation.dropped("hide-operator-status", "", true)
                          .dropped("hide-errors-and-warnings", "", true)
                          .read(words);
    return runs ? Words{"report"} : Words{"report", "--help"};
}

// Converts the words of ds_ssh to words of `dslaunch exec`. As with pdsh, the words of the command
// are joined to one text, and a shell runs this text in the home folder of each host.
Words ssh_words(std::span<const std::string> words) {
    constexpr const char* kUsual = "/job/hostfile";
    std::string hostfile;  // empty: kUsual
    size_t next = 0;
    while (next < words.size() && words[next].starts_with('-') && words[next] != "--") {
        const std::string& word = words[next];
        if (word == "-h" || word == "--help" || word == "-?") return {"exec", "--help"};
        if (!word.starts_with("-f"))
            fail(ExitCode::kUsage,
                 "ds_ssh: unknown option `{}`; ds_ssh has only the option -f HOSTFILE, but "
                 "`dslaunch exec` has more options",
                 printable(word));
        const bool is_joined = word.size() > 2;
        if (!is_joined && next + 1 == words.size())
            fail(ExitCode::kUsage, "ds_ssh: -f needs a hostfile");
        hostfile = is_joined ? word.substr(2) : words[++next];
        ++next;
    }
    if (next < words.size() && words[next] == "--") ++next;
    const std::span<const std::string> command = words.subspan(next);
    if (command.empty())
        fail(ExitCode::kUsage, "ds_ssh: a command is missing: ds_ssh [-f HOSTFILE] COMMAND");
    if (hostfile.empty() && ::access(kUsual, F_OK) != 0)
        fail(
            ExitCode::kUsage,
            "ds_ssh: there is no {}, the usual hostfile: name another one with -f HOSTFILE, a file "
            "with one host per line, such as `node1 slots=4`",
            kUsual);
    if (hostfile.empty()) hostfile = kUsual;
    return {"exec", "--hostfile", hostfile, "--stream", "--chdir",
            "/",    "--",         "sh",     "-c",       "cd; " + join(command, " ")};
}

// Returns the option --sizes for the benchmark's exponent N in VALUE: the largest message has 2^N
// bytes.
std::string sizes_up_to(const std::string& value) {
    constexpr int64_t kExponentMax = 36;
    const auto exponent = parse_int(value);
    if (!exponent || *exponent < 2 || *exponent > kExponentMax)
        fail(ExitCode::kUsage, "`{}` is not a power of two from 2 to {}", printable(value),
             kExponentMax);
    std::string sizes;
    for (const int64_t size : {int64_t{1} << 12, int64_t{1} << 16, int64_t{1} << 20})
        if (size < int64_t{1} << *exponent) sizes += fmt::format("{},", size);
    return fmt::format("--sizes={}{}", sizes, int64_t{1} << *exponent);
}

Words bench_words(std::span<const std::string> words) {
    Words health = {"health"};
    Translation translation("ds_bench");
    translation
        .taken("maxsize", "N",
               [&](const std::string& value) { health.push_back(sizes_up_to(value)); })
        .taken("backend", "NAME",
               [&](const std::string& value) {
                   if (value != "nccl" && value != "gloo")
                       fail(ExitCode::kUsage, "`{}` is not supported; use nccl or gloo",
                            printable(value));
                   health.push_back("--backend=" + value);
               })
        .dropped("trials", "N")
        .dropped("warmups", "N")
        .dropped("bw-unit", "NAME")
        .dropped("dist", "NAME")
        .dropped("dtype", "NAME")
        .dropped("mem-factor", "X")
        .dropped("scan", "")
        .dropped("raw", "")
        .dropped("debug", "")
        .dropped("async-op", "")
        .dropped("local-rank", "N")
        .dropped("all-reduce", "")
        .dropped("all-gather", "")
        .dropped("all-to-all", "")
        .dropped("reduce-scatter", "")
        .dropped("broadcast", "")
        .dropped("pt2pt", "");
    return translation.read(words) ? health : Words{"health", "--help"};
}

constexpr std::string_view kNoGpu =
    "io-bench measures transfers between disk and memory (dslaunch transfers nothing between disk "
    "and GPU): leave this option out";

Words io_words(std::span<const std::string> words) {
    std::string folder;
    const auto take_folder = [&](const std::string& value) {
        if (!folder.empty() && folder != value)
            fail(ExitCode::kUsage, "one disk is measured at a time: run it once for each folder");
        folder = value;
    };
    Translation translation("ds_io");
    translation.taken("folder", "DIR", take_folder)
        .taken("folder-to-device-mapping", "DIR:DEVICE",
               [&](const std::string& value) { take_folder(value.substr(0, value.rfind(':'))); })
        .becomes("io-size", "BYTES", "--size")
        .becomes("block-size", "BYTES", "--blocks")
        .becomes("queue-depth", "N", "--depths")
        .becomes("loops", "N", "--turns")
        .taken("engine", "NAME",
               [](const std::string& value) {
                   if (value.starts_with("torch"))
                       fail(ExitCode::kUsage,
                            "the engine `{}` measures torch.save, but `dslaunch io-bench` measures "
                            "the disk: leave --engine out",
                            printable(value));
               })
        .taken("multi-process", "N",
               [](const std::string& value) {
                   if (value != "1")
                       fail(ExitCode::kUsage,
                            "io-bench measures with one process, which keeps --queue_depth blocks "
                            "in flight: leave this option out");
               })
        .refused("gpu", "", kNoGpu)
        .refused("use-gds", "", kNoGpu)
        .dropped("read", "", true)  // io-bench reads and writes
        .dropped("fast-io-size", "BYTES")
        .dropped("io-parallel", "N")
        .dropped("warmup-loops", "N")
        .dropped("single-submit", "")
        .dropped("sequential-requests", "")
        .dropped("validate", "")
        .dropped("include-warmup-time", "")
        .dropped("slow-bounce-buffer", "")
        .dropped("torch-legacy-save", "")
        .dropped("use-accelerator-pin-memory", "")
        .dropped("different-file-each-iteration", "");
    if (!translation.read(words)) return {"io-bench", "--help"};
    if (folder.empty())
        fail(ExitCode::kUsage, "ds_io: --folder DIR is missing: a folder on the disk to measure");
    return with({"io-bench", folder, "--no-store"}, translation.words());
}

Words nvme_words(std::span<const std::string> words) {
    std::string folder;
    Translation translation("ds_nvme_tune");
    translation.taken("nvme-dir", "DIR", [&](const std::string& value) { folder = value; })
        .becomes("io-size", "BYTES", "--size")
        .becomes("loops", "N", "--turns")
        .refused("sweep-config", "FILE",
                 "give the values as `dslaunch io-bench DIR --blocks 1M,8M --depths 32,128`")
        .refused("gpu", "", kNoGpu)
        .refused("gds", "", kNoGpu)
        .dropped("no-read", "")
        .dropped("no-write", "")
        .dropped("flush-page-cache", "", true)  // no cache is used
        .dropped("log-dir", "DIR")
        .dropped("verbose", "", true);
    if (!translation.read(words)) return {"io-bench", "--help"};
    if (folder.empty())
        fail(ExitCode::kUsage,
             "ds_nvme_tune: --nvme_dir DIR is missing: a folder on the disk to measure");
    return with({"io-bench", folder}, translation.words());
}

Words elastic_words(std::span<const std::string> words) {
    std::string config;
    Translation translation("ds_elastic");
    translation.taken("config,c", "FILE", [&](const std::string& value) { config = value; })
        .becomes("world-size,w", "N", "--world-size");
    if (!translation.read(words)) return {"config", "check", "--help"};
    if (config.empty())
        fail(ExitCode::kUsage, "ds_elastic: --config FILE is missing: the ds_config.json");
    return with({"config", "check", config}, translation.words());
}

Words universal_words(std::span<const std::string> words) {
    std::string input, output;
    Translation translation("ds_to_universal");
    translation.taken("input-folder", "DIR", [&](const std::string& value) { input = value; })
        .taken("output-folder", "DIR", [&](const std::string& value) { output = value; })
        .dropped("num-extract-workers", "N", true)
        .dropped("num-merge-workers", "N", true)
        .dropped("keep-temp-folder", "", true)
        .dropped("no-strict", "")
        .dropped("inject-missing-state", "");
    if (!translation.read(words)) return {"ckpt", "import", "--help"};
    if (input.empty() || output.empty())
        fail(ExitCode::kUsage,
             "ds_to_universal: --input_folder DIR and --output_folder DIR are "
             "needed: a DeepSpeed checkpoint, and an --output folder for runs");
    return {"ckpt", "import", input, output};
}

constexpr bool kIsQuiet = false;  // DeepSpeedName::shows_command

constexpr DeepSpeedName kNames[] = {
    {"deepspeed", "run: trains a model, or starts a script or program on all slots", run_words,
     kIsQuiet},
    {"ds", "run, as deepspeed", run_words, kIsQuiet},
    {"deepspeed.pt", "run, as deepspeed", run_words, kIsQuiet},
    {"ds_report", "report: text for a bug report, with secrets hidden", report_words},
    {"dsr", "report, as ds_report", report_words},
    {"ds_ssh", "exec --stream: runs a shell command on all hosts of a hostfile", ssh_words},
    {"ds_bench", "health: measures links and collectives between hosts", bench_words},
    {"ds_io", "io-bench --no-store: measures a disk", io_words},
    {"ds_nvme_tune", "io-bench: measures a disk and stores the best settings", nvme_words},
    {"ds_elastic", "config check: the batch sizes of a config on a number of ranks", elastic_words},
    {"ds_to_universal", "ckpt import: a checkpoint that any number of ranks can resume",
     universal_words},
    {"zero_to_fp32.py", "zero_to_fp32: the fp32 weights of a checkpoint as safetensors", fp32_words,
     kIsQuiet},
};

}  // namespace

std::span<const DeepSpeedName> deepspeed_names() {
    return kNames;
}

const DeepSpeedName* find_deepspeed_name(std::string_view name) {
    const auto* const found = std::ranges::find(kNames, name, &DeepSpeedName::name);
    return found == std::end(kNames) ? nullptr : found;
}

std::vector<std::string> meant_words(std::string_view program, std::vector<std::string> words) {
    const DeepSpeedName* const row = find_deepspeed_name(program.substr(program.rfind('/') + 1));
    if (row == nullptr) return words;
    const Words meant = row->translate(words);
    if (row->shows_command) {
        std::string command = "dslaunch";
        for (const std::string& word : meant) command += " " + shell_word(word);
        print_message(fmt::format("dslaunch: {} means: {}", row->name, printable(command)));
    }
    return meant;
}

}  // namespace dslaunch::launcher
