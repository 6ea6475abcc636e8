// Passes bad hostfiles, configs, archives, data files and command lines to the real dslaunch. Each
// of them causes its message and its exit code, and leaves no process and no partial result.
#include <sys/prctl.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <map>

#include "launch/files/file_facts.h"
#include "support/catch.h"
#include "support/saving_job.h"
#include "support/text_tools.h"
#include "support/train_job.h"

namespace dslaunch::test {

using namespace launch;
namespace {

struct Row {
    std::vector<std::string> arguments;  // DIR is the test's folder, MODELS and DATA are folders
                                         // of the fixtures
    int code = 0;
    std::string message;
    std::vector<std::string> environment = {};  // NAME=VALUE
};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
}

std::string placed(std::string text, const TemporaryFolder& folder) {
    replace_all(text, "DIR/", folder.path() + "/");
    replace_all(text, "MODELS/", fixture_path("models/"));
    replace_all(text, "DATA/", fixture_path("data/"));
    return text;
}

void check_row(const TemporaryFolder& folder, const Row& row) {
    std::vector<std::string> command = {"/usr/bin/env"};
    command.insert(command.end(), row.environment.begin(), row.environment.end());
    command.emplace_back(kDslaunch);
    std::string line;
    for (const std::string& argument : row.arguments) {
        command.push_back(placed(argument, folder));
        line += " " + command.back();
    }
    JobProcess process(folder, command);
    const int code = process.wait();
    INFO("dslaunch" << line << "\n" << process.err());
    CHECK(code == row.code);
    CHECK(process.err().find(placed(row.message, folder)) != std::string::npos);
    // A bad input causes no crash, and the message contains no text of C++ itself.
    for (const char* noise : {"terminate called", "Exception raised from", "frame #",
                              "Segmentation fault", "what():", "\\x0a"})
        CHECK(process.err().find(noise) == std::string::npos);
    CHECK(descendants(::getpid()).empty());
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/out/model.safetensors"));
    CHECK(content_of(folder.path() + "/out/metrics.jsonl").empty());
}

void check_rows(const TemporaryFolder& folder, const std::vector<Row>& rows) {
    adopt_orphans();
    for (const Row& row : rows) check_row(folder, row);
}

// Returns the arguments of a whole job on gpt.pt with CONFIG.
std::vector<std::string> with_config(const std::string& config, bool on_cpu = true) {
    if (!on_cpu)
        return {"--num_gpus", "2", "MODELS/gpt.pt", "--config", config, "--output", "DIR/out"};
    return {"--num_gpus", "2",    "--device", "cpu",    "MODELS/gpt.pt",
            "--config",   config, "--output", "DIR/out"};
}

std::vector<std::string> with_set(const std::string& assignment) {
    std::vector<std::string> arguments = with_config("DIR/good.json");
    arguments.insert(arguments.end(), {"--set", assignment});
    return arguments;
}

std::vector<std::string> with_model(const std::string& model) {
    return {"--num_gpus",    "2",        "--device", "cpu", model, "--config",
            "DIR/good.json", "--output", "DIR/out"};
}

std::vector<std::string> with_data(const std::string& model, const std::string& data) {
    return {"--num_gpus", "2",        "--device",       "cpu",      model,
            "--steps",    "2",        "--data",         data,       "--context",
            "32",         "--config", "DIR/empty.json", "--output", "DIR/out"};
}

void write_good_config(const TemporaryFolder& folder) {
    std::ifstream file(fixture_path("models/gpt.json"));
    write_file(folder.path() + "/good.json", fixture_config(Json::parse(file), 1, 3).dump());
    write_file(folder.path() + "/empty.json", "{}");
}

}  // namespace

TEST_CASE("every bad hostfile ends dslaunch with the message written beside it") {
    adopt_orphans();
    const TemporaryFolder folder;
    int files = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(test::source_dir()) + "/hostfiles/bad")) {
        if (entry.path().extension() == ".expected") continue;
        std::ifstream expected(entry.path().string() + ".expected");
        std::string line;
        std::getline(expected, line);
        // The message in `word-slots:1:11: …` names the file without its folder.
        check_row(folder,
                  {{"--hostfile", entry.path().string(), "--output", "DIR/out", "MODELS/gpt.pt"},
                   64,
                   line});
        ++files;
    }
    CHECK(files >= 25);
}

TEST_CASE("bad command lines are refused before anything starts") {
    const TemporaryFolder folder;
    write_good_config(folder);
    write_file(folder.path() + "/text.txt",
               "In the beginning God created the heaven and the earth. And the earth was.\n");
    write_file(folder.path() + "/rows.jsonl",
               R"({"messages": [{"role": "user", "content": "Who was in the beginning?"}]})"
               "\n");
    write_file(folder.path() + "/two", "localhost slots=2\n");
    std::filesystem::copy_file(fixture_path("models/gpt.pt"), folder.path() + "/mine.pt");
    std::filesystem::create_directory(folder.path() + "/folder");
    std::filesystem::create_directory(folder.path() + "/my model");
    check_rows(
        folder,
        {
            {{}, 64, "usage: dslaunch"},
            {{"--num_gpus", "2"}, 64, "TARGET is missing"},
            {{"--num_gpuz", "2", "MODELS/gpt.pt"}, 64, "--num_gpu"},
            {{"--num_gpus", "0", "MODELS/gpt.pt"}, 64, "`0` is not a number from 1"},
            {{"--num_gpus", "two", "MODELS/gpt.pt"}, 64, "`two` is not a number"},
            {{"--num_gpus", "2", "--num_gpus", "3", "MODELS/gpt.pt"}, 64, "twice"},
            {{"--num_gpus"}, 64, "--num_gpus"},
            {{"--hostfile", "DIR/none", "MODELS/gpt.pt"}, 64, "DIR/none"},
            {{"--hostfile", "DIR/two", "--num_gpus", "3", "MODELS/gpt.pt"}, 64, "3"},
            {{"--hostfile", "DIR/two", "--num_nodes", "2", "MODELS/gpt.pt"}, 64, "2"},
            {{"--hostfile", "DIR/two", "--include", "elsewhere", "MODELS/gpt.pt"}, 64, "elsewhere"},
            {{"--hostfile", "DIR/two", "--exclude", "localhost", "MODELS/gpt.pt"}, 64, "localhost"},
            {{"--hostfile", "DIR/two", "--include", "localhost:7", "MODELS/gpt.pt"}, 64, "7"},
            {{"--steps", "-1", "MODELS/gpt.pt"}, 64, "-1"},
            {{"--grace", "soon", "MODELS/gpt.pt"}, 64, "`soon` is not a number of seconds"},
            {{"--expect-sha256", "abc", "MODELS/gpt.pt"}, 64, "64 hexadecimal digits"},
            {{"--launcher", "rsh", "MODELS/gpt.pt"}, 64, "`rsh` is none of ssh, openssh, pdsh"},
            {{"--device", "tpu", "MODELS/gpt.pt"}, 64, "`tpu` is none of auto, cpu, cuda"},
            {{"--autotuning", "fast", "MODELS/gpt.pt"}, 64, "`fast` is neither tune nor run"},
            {{"config", "chekc", "DIR/two"}, 64, "error: config: `chekc` is unknown, did you mean"},
            {{"health", "train.pt"}, 64, "error: dslaunch health does not accept `train.pt`"},
            {{"generate", "--temperature", "-1", "m.pt"},
             64,
             "dslaunch: error: generate: --temperature: `-1` is not a number from 0 upwards"},
            {{"check", "config", "DIR/two"},
             64,
             "the subcommand must come first: dslaunch config che"},
            {{"vllm", "serve", "MODELS/gpt.pt"},
             64,
             "`vllm` is not a subcommand: for a server: dslaunch serve "},
            {{"DIR/folder"}, 66, "DIR/folder: is an empty folder, not a model"},
            {{"--resume", "DIR/folder", "MODELS/gpt.pt"},
             64,
             "to resume from a folder, write --resume=DIR"},
            {{"MODELS/gpt.pt", "--data=~/tokens.bin"},
             64,
             "--data: dslaunch does not expand `~`, and a shell expands it only at the start of a "
             "word"},
            {{"~/no-such-model", "--data", "x"}, 66, "dslaunch does not expand `~`, and a shell"},
            {{"MODELS/gpt.pt", "-o", "$HOME/x"},
             64,
             "dslaunch does not expand `$HOME`, and a shell"},
            {{"no-such-model", "--data", "x"}, 66, "no-such-model: "},
            {{"DIR/my", "model", "--data", "x"},
             64,
             "needs quotes: dslaunch 'DIR/my model' --data x"},
            {{"\xe2\x80\x94num_gpus", "2", "MODELS/gpt.pt"}, 64, "begins with a typographic dash"},
            {{"-H", "n1:4,n2:4", "MODELS/gpt.pt"}, 64, "write the hosts into a file, one per line"},
            {{"MODELS/gpt.pt", "--steps", "1"},
             64,
             "`many` is not a number of threads; set it",
             {"OMP_NUM_THREADS=many"}},
            {{"MODELS/gpt.pt", "--steps", "1"},
             71,
             "but srun is not in PATH: add srun to PATH, or unset",
             {"PATH=/nonexistent", "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1", "SLURM_NNODES=1",
              "SLURM_JOB_NUM_NODES=1", "SLURM_TASKS_PER_NODE=1"}},
            // Values that an option does not accept.
            {{"--steps", "five", "MODELS/gpt.pt"}, 64, "`five` is not a number from 1 upwards"},
            {{"ckpt", "export", "DIR", "DIR/o", "--format", "gguf"},
             64,
             "dslaunch compress NEW --to q8_0"},
            {{"--config", "DIR/rows.jsonl", "MODELS/gpt.pt"},
             65,
             "a .jsonl file contains rows of data"},
            {{"no-such-command"}, 127, "`no-such-command` is neither a subcommand nor a program"},
            {{"DIR/no-such-command"}, 127, "DIR/no-such-command: this program does not exist"},
            {{"HuggingFaceTB/SmolLM2-135M", "--steps", "2"}, 66, "hf download HuggingFaceTB/Smol"},
            {{"--steps", "2", "HuggingFaceTB/SmolLM2-135M"},
             66,
             "dslaunch does not download models"},
            {{"verify", "HuggingFaceTB/SmolLM2-135M"}, 66, "dslaunch does not download models"},
            {{"generate", "Org/Name", "--prompt", "a"}, 66, "hf download Org/Name"},
            {{"serve", "Org/Name", "--num_gpus", "2"}, 66, "hf download Org/Name"},
            {{"DIR/text.txt"},
             126,
             "DIR/text.txt: is text, neither a model nor an executable program"},
            {{"--steps", "2", "DIR/text.txt"},
             66,
             "is text, neither a model nor an executable program"},
            {{"serve", "MODELS/gpt.pt"}, 66, "`serve` needs a Hugging Face folder"},
            {{"data", "show", "DIR/text.txt"}, 66, "is text, not rows of tokens. First convert it"},
            {{"data", "prepare", "DIR/text.txt", "--model", "MODELS/gpt.pt", "--context", "8", "-o",
              "DIR/r.safetensors"},
             66,
             "needs the folder of a Hugging Face model"},
            {{"tokens", "bytes", "DIR/text.txt", "-o", "DIR/two"},
             66,
             "already exists; use --force"},
            {{"tokens", "DIR/text.txt"}, 64, "dslaunch tokens bytes DIR/text.txt -o"},
            {{"model", "new", "gpt", "--size", "tiny", "-o", "DIR/two"},
             66,
             "use --force to replace it"},
            {{"bundle", "DIR/two"}, 66, "already exists; use --force to replace it"},
            {{"pack", "MODELS/gpt.pt", "--config", "DIR/none.json"}, 65, "no such file"},
            {{"help", "rnu"}, 64, "did you mean `run`?"},
            {{"help", "download"}, 64, "hf download ORG/NAME --local-dir NAME"},
            {{"plan", "DIR/text.txt"}, 66, "is text, not a model (such as a Hugging Face folder"},
            {{"model", "download", "SmolLM2"}, 64, "hf download ORG/SmolLM2 --local-dir SmolLM2"},
            {{"pull", "Org/Name"},
             64,
             "`pull`: dslaunch does not download models. Download it: hf downl"},
            {{"data", "show", "DIR/rows.jsonl", "--model", "DIR/folder"},
             66,
             "DIR/folder: is an empty folder, but `--model` needs the folder of a"},
            {{"model", "new", "gpt", "--size", "tiny", "-o", "DIR/inputs/x.pt"},
             72,
             "DIR/inputs/x.pt: the folder DIR/inputs does not exist; make it: mkdir -p DIR/inputs"},
            {{"pack", "DIR/mine.pt", "--data", "DIR/text.txt", "--extra", "a=DIR/two"},
             0,
             "dslaunch: DIR/mine.pt: rewritten; dslaunch.data.train = DIR/text.txt added to a new "
             "config; DIR/two added as a"},
            {{"pack", "DIR/mine.pt", "--config", "DIR/good.json", "-o", "DIR/other.pt"},
             0,
             "dslaunch: DIR/other.pt: written; the config in the archive is now a copy of "
             "DIR/good.json"},
        });
}

TEST_CASE("what is said of the machine comes after everything that refuses the command line") {
    const TemporaryFolder folder;
    JobProcess process(folder, {kDslaunch, "--num_gpus", "2", fixture_path("models/gpt.pt")});
    CHECK(process.wait() == 66);
    CHECK(process.err().find("no training data") != std::string::npos);
    CHECK(process.err().find("found no GPU") == std::string::npos);
}

TEST_CASE("bad configs are refused with all their problems, once, before the first step") {
    const TemporaryFolder folder;
    write_good_config(folder);
    write_file(folder.path() + "/text.json", "not json: [");
    write_file(folder.path() + "/list.json", "[1, 2]");
    write_file(folder.path() + "/typo.json",
               R"({"zero_optimisation": {}, "dslaunch": {"stps": 3}})");
    write_file(
        folder.path() + "/fp16.json",
        R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}, "dslaunch": {"steps": 1}})");
    write_file(folder.path() + "/cuda.json",
               R"({"dslaunch": {"device": "cuda", "steps": 1, "data": {"context": 32, "train": ")" +
                   fixture_path("data/kjv.u16.bin") + R"("}}})");
    write_file(folder.path() + "/batch.json", R"({"train_batch_size": 7})");
    check_rows(
        folder,
        {
            {with_config("DIR/none.json"), 65, "DIR/none.json"},
            {with_config("DIR/text.json"), 65, "DIR/text.json"},
            {with_config("DIR/list.json"), 65, "must be an object"},
            {with_config("DIR/typo.json"), 65, "did you mean `zero_optimization`?"},
            {with_config("DIR/typo.json"), 65, "did you mean `steps`?"},
            {with_config("DIR/fp16.json"), 65, "bf16"},
            {with_config("DIR/batch.json"), 65, "7 is not a multiple of 1 micro steps x 2 ranks"},
            {with_config("DIR/empty.json"), 66, "no training data: give a file with --data FILE"},
            {with_set("zero_optimization.stage=4"), 65, "zero_optimization.stage"},
            {with_set("optimizer.type=Adm"), 65, "Adm"},
            {with_set("dslaunch.steps=0"), 65, "dslaunch.steps"},
            {with_set("gradient_clipping=-1"), 65, "must not be negative"},
            {with_set("no.such.key=1"), 65, "--set: no: unknown key"},
            {with_set("dslaunch.save.on_error=perhaps"), 65, "must be one of stop, continue"},
            {with_config("DIR/cuda.json", false), 71, "found no GPU on this machine"},
        });
}

TEST_CASE("bad archives are refused by name") {
    const TemporaryFolder folder;
    write_good_config(folder);
    const std::string archive = content_of(fixture_path("models/gpt.pt"));
    write_file(folder.path() + "/void.pt", "");
    write_file(folder.path() + "/garbage.pt", std::string(9000, '\x5a'));
    write_file(folder.path() + "/half.pt", archive.substr(0, archive.size() / 2));
    write_file(folder.path() + "/end.pt", archive.substr(0, archive.size() - 30));
    write_file(folder.path() + "/secret.pt", archive);
    std::filesystem::create_directory(folder.path() + "/folder.pt");
    std::vector<std::string> other = with_model("MODELS/gpt.pt");
    other.insert(other.end(), {"--expect-sha256", std::string(64, 'a')});
    check_rows(
        folder,
        {
            {with_model("DIR/none.pt"), 66, "DIR/none.pt"},
            {with_model("DIR/folder.pt"), 66, "DIR/folder.pt: is a folder, but a file is expected"},
            {with_model("DIR/void.pt"), 66, "DIR/void.pt: not a usable archive"},
            {with_model("DIR/garbage.pt"), 66, "DIR/garbage.pt: not a usable archive"},
            {with_model("DIR/half.pt"), 66, "DIR/half.pt: not a usable archive"},
            {with_model("DIR/end.pt"), 66, "DIR/end.pt: not a usable archive"},
            {other, 66, "this is a different file"},
            // The model's output is not a loss, and the config names no loss. The model's arguments
            // do not match the file's.
            {with_model("MODELS/mlp.pt"), 66, "take 1: input"},
            {with_model("MODELS/image-text.pt"), 66, "take 3"},
        });
}

TEST_CASE("an archive that changes between the comparison of its hash and its loading is refused") {
    for (const bool changes : {false, true}) {
        SavingJob job;
        job.steps = 2;
        const std::string path = job.folder.path() + "/model.pt";
        std::filesystem::copy_file(fixture_path("models/gpt.pt"), path);
        HashCache cache("");
        std::vector<std::string> command = job.command(/*resume=*/false);
        command.back() = path;
        command.insert(command.end() - 1, {"--expect-sha256", hash_whole_file(path, cache, [] {})});
        JobProcess process(job.folder, command);
        // A file that somebody replaces and restores has the same bytes but another ctime.
        std::atomic<bool> over = false;
        std::thread other([&] {
            while (changes && !over) {
                ::chmod(path.c_str(), 0600);
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        });
        const int code = process.wait();
        over = true;
        other.join();
        INFO(process.err());
        CHECK(code == (changes ? 66 : 0));
        CHECK((process.err().find("changed or replaced") != std::string::npos) == changes);
    }
}

TEST_CASE("bad data files are refused with file and place") {
    const TemporaryFolder folder;
    write_good_config(folder);
    const std::string digits = content_of(fixture_path("data/digits.safetensors"));
    write_file(folder.path() + "/void.bin", "");
    write_file(folder.path() + "/odd.bin", std::string(4097, '\1'));
    write_file(folder.path() + "/short.bin", std::string(20, '\1'));
    std::string tokens;
    for (int i = 0; i < 2000; ++i) tokens += {static_cast<char>(i == 1500 ? 200 : 5), '\0'};
    write_file(folder.path() + "/high.bin", tokens);
    write_file(folder.path() + "/cut.safetensors", digits.substr(0, digits.size() / 2));
    write_file(folder.path() + "/header.safetensors", std::string(8, '\x7f') + "{}");
    tokens[2] = '\xc8';
    write_file(folder.path() + "/early.bin", tokens);
    write_file(folder.path() + "/array.npy", "not an array");
    write_file(folder.path() + "/text.txt",
               "In the beginning God created the heaven and the earth");
    write_file(folder.path() + "/fetched.bin",
               "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n");
    write_file(folder.path() + "/good.bin.gz", "\x1f\x8b\x08" + std::string(400, '\5'));
    write_file(folder.path() + "/x.csv", "x,y\n1.0,2\n3.0,4\n5.0,6\n7.0,8\n9.0,0\n");
    std::filesystem::create_directory(folder.path() + "/folder.bin");
    check_rows(
        folder,
        {
            {with_data("MODELS/gpt.pt", "DIR/none.bin"), 66, "DIR/none.bin"},
            {with_data("MODELS/gpt.pt", "DIR/folder.bin"), 66,
             "is a folder, but a file is expected"},
            {with_data("MODELS/gpt.pt", "DIR/void.bin"), 66, "the token file is empty"},
            {with_data("MODELS/gpt.pt", "DIR/odd.bin"), 66, "not a whole number of uint16 tokens"},
            {with_data("MODELS/gpt.pt", "DIR/short.bin"), 66, "10 tokens are too few for a sample"},
            {with_set("train_micro_batch_size_per_gpu=100000"), 66,
             "a micro batch of 100000 rows needs more rows than the file has ("},
            {with_data("MODELS/gpt.pt", "DIR/high.bin"), 66,
             "token 200 at position 1500 is outside the model's vocabulary (0 to 127)"},
            // Every rank reads this token in its first batch, so any rank may be the first to end.
            {with_data("MODELS/gpt.pt", "DIR/early.bin"), 66,
             "token 200 at position 1 is outside the model's vocabulary (0 to 127)"},
            {with_data("MODELS/gpt.pt", "DIR/text.txt"), 66,
             "DIR/text.txt: is text, not tokens: to make each byte a token, run `dslaunch tokens "
             "bytes DIR/text.txt -o "},
            {with_data("MODELS/gpt.pt", "DIR/fetched.bin"), 66, "fetch it: git lfs pull"},
            {with_data("MODELS/gpt.pt", "DIR/good.bin.gz"), 66, "is compressed"},
            {with_data("MODELS/convnet.pt", "DIR/x.csv"), 66, "is a text table"},
            {with_data("MODELS/gpt.pt", "MODELS/gpt.pt"), 66, "is a model, not data"},
            {with_data("MODELS/gpt.pt", "https://a.org/x.bin"), 66,
             "--data https://a.org/x.bin: is a URL, but data can only be read from files"},
            {with_data("MODELS/convnet.pt", "DIR/cut.safetensors"), 66, "DIR/cut.safetensors"},
            {with_data("MODELS/convnet.pt", "DIR/header.safetensors"), 66,
             "DIR/header.safetensors"},
            {with_data("MODELS/convnet.pt", "DIR/array.npy"), 66, "DIR/array.npy"},
            {with_data("MODELS/gpt.pt", "DATA/digits.safetensors"), 66, "is only for token files"},
            {with_data("MODELS/convnet.pt", "DATA/captions.safetensors"), 66,
             "captions.safetensors"},
            {with_data("MODELS/convnet.pt", "DATA/kjv.u16.bin"), 66, "kjv.u16.bin"},
            // The context is one more than the model has positions for: the first batch does not
            // fit.
            {with_set("dslaunch.data.context=33"), 66, "--context 33: the model has 32 positions"},
        });
}

TEST_CASE("a loss that is not finite stops the job and leaves no weights") {
    adopt_orphans();
    const TemporaryFolder folder;
    write_good_config(folder);
    std::vector<std::string> arguments = {kDslaunch};
    for (const std::string& argument : with_set("optimizer.params.lr=1e30"))
        arguments.push_back(placed(argument, folder));
    JobProcess process(folder, arguments);
    CHECK(process.wait() == 74);
    INFO(process.err());
    CHECK(process.err().find("training has diverged") != std::string::npos);
    // The message names the step itself. The report must not add an older step from a heartbeat.
    CHECK(process.err().find("it was at: ") == std::string::npos);
    CHECK(descendants(::getpid()).empty());
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/out/model.safetensors"));
}

TEST_CASE("an output folder that cannot be written is an error before the first step") {
    adopt_orphans();
    const TemporaryFolder folder;
    write_good_config(folder);
    write_file(folder.path() + "/file", "in the way");
    std::vector<std::string> arguments = with_config("DIR/good.json");
    arguments.back() = "DIR/file/out";
    check_row(folder, {arguments, 72, "DIR/file"});
    arguments.back() = "DIR/file";
    check_row(folder, {arguments, 72, "--output DIR/file: is a file, but must be a folder"});
    CHECK(content_of(folder.path() + "/file") == "in the way");
}

TEST_CASE("what is no checkpoint cannot be resumed from, and is told for what it is") {
    const TemporaryFolder folder;
    write_good_config(folder);
    const auto resumed_from = [](const std::string& path) {
        std::vector<std::string> arguments = with_config("DIR/good.json");
        arguments.push_back("--resume=" + path);
        return arguments;
    };
    check_rows(folder,
               {{resumed_from("MODELS/gpt.pt"), 73,
                 "gpt.pt: is a model's archive, not a checkpoint: give the"},
                {resumed_from("MODELS/../deepspeed/bf16-0"), 73,
                 "is a DeepSpeed checkpoint, and --resume continues dslaunch's own: dslaunch ckpt "
                 "import"}});
}

TEST_CASE("a limit of file sizes ends a job by its name, not by a signal") {
    adopt_orphans();
    const TemporaryFolder folder;
    write_good_config(folder);
    std::vector<std::string> command = {"/bin/sh", "-c", "ulimit -f 64; exec \"$@\"", "sh",
                                        kDslaunch};
    for (const std::string& argument : with_config("DIR/good.json"))
        command.push_back(placed(argument, folder));
    JobProcess process(folder, command);
    const int code = process.wait();
    INFO(process.err());
    // The memory that ranks share is a file without a name, so the limit applies to it.
    CHECK(code == 71);
    CHECK(process.err().find("raise the limit on file sizes (ulimit -f)") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/out/model.safetensors"));
    CHECK(descendants(::getpid()).empty());
}

TEST_CASE("weights that cannot be written at the end are an error that names the file") {
    adopt_orphans();
    const TemporaryFolder folder;
    write_good_config(folder);
    std::vector<std::string> command = {kDslaunch, "--steps", "100"};
    for (const std::string& argument : with_config("DIR/good.json"))
        command.push_back(placed(argument, folder));
    JobProcess process(folder, command);
    // dslaunch would refuse an obstacle that exists at the start, so this one is made later.
    REQUIRE(wait_until([&] {
        return std::filesystem::exists(folder.path() + "/out/metrics.jsonl") &&
               !content_of(folder.path() + "/out/metrics.jsonl").empty();
    }));
    std::filesystem::create_directories(folder.path() + "/out/model.safetensors/in the way");
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 72);
    CHECK(process.err().find(folder.path() + "/out/model.safetensors") != std::string::npos);
    CHECK(process.out().find("trained") == std::string::npos);
    CHECK(descendants(::getpid()).empty());
}

TEST_CASE("a run of which every step overflows is no success, one with an update is") {
    struct Row {
        int scale_power;
        int steps;
        int code;
    };
    // From the second skipped step on, each skipped step halves the largest scale.
    for (const Row& row : {Row{32, 3, 74}, Row{32, 30, 0}}) {
        SavingJob job;
        job.steps = row.steps;
        job.interval = 1000;
        job.change = [&](Json& config) {
            config["fp16"] = {{"enabled", true}, {"initial_scale_power", row.scale_power}};
        };
        JobProcess process(job.folder, job.command(/*resume=*/false));
        const int code = process.wait();
        INFO(process.err() << process.out());
        CHECK(code == row.code);
        CHECK((process.err().find("changed the model: all were skipped") != std::string::npos) ==
              (row.code != 0));
        CHECK((process.out().find(" of them skipped)") != std::string::npos) == (row.code == 0));
        CHECK(std::filesystem::exists(job.output() + "/model.safetensors") == (row.code == 0));
    }
}

}  // namespace dslaunch::test
