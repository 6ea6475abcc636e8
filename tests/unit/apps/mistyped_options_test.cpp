// Options in other tools' form, or with values that they do not take, and the message about each.
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/error.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/typed_line.h"

using namespace dslaunch;
using namespace dslaunch::launcher;

namespace {

std::string mistyped_options_refusal(const std::string& line) {
    return test::error_of(ExitCode::kUsage, [&] { (void)test::typed_options(line); });
}

void make_job(const std::string& line) {
    static_cast<void>(test::typed_job(line));
}

}  // namespace

TEST_CASE("numbers with a unit or with separators are answered with what to write") {
    for (const auto& [typed, here] :
         {std::pair{"--context 2k",
                    "`2k` is not a number from 1 upwards; write 2000, or a power "
                    "of two, without the k"},
          {"--save-interval 10m", "`10m` is not a number from 0 upwards; this is a plain number"},
          {"--save-interval 0.5", "`0.5` is not a whole number from 0 upwards"},
          {"--steps 1_000", "without thousands separators: 2.5e-4, 1000"},
          {"--steps 1e4", "write 10000"},
          {"--steps 10%", "a percentage is not accepted"},
          {"--warmup-steps 0.1", "a fraction of the total is not accepted"},
          {"--lr 1e-4,1e-5", "`1e-4,1e-5` is not a number above 0; give one number"},
          {"--lr auto", "for the default, leave the option out"},
          {"--keep 3x", "write the number alone, without x"},
          {"--seed 2026-11-30", "write one number: 20261130"}})
        CHECK_THAT(mistyped_options_refusal(std::string("t.pt ") + typed), Catch::Contains(here));
    CHECK_THAT(mistyped_options_refusal("t.pt --steps\u00a05"),
               Catch::Contains("a non-breaking space (U+00A0)"));
    CHECK_THAT(mistyped_options_refusal("t.pt --steps many"),
               Catch::EndsWith("is not a number from 1 upwards"));
}

TEST_CASE("an unknown option that another tool has is named as it is here") {
    const std::pair<const char*, const char*> cases[] = {
        {"--weight_decay 0.1", "--set optimizer.params.weight_decay=X"},
        {"--max_grad_norm 1", "--set gradient_clipping=1.0"},
        {"--lr_scheduler_type cosine", "--set scheduler.type=Cosine"},
        {"--warmup_ratio 0.1", "--warmup-steps N"},
        {"--load_in_4bit true", "--lora r=16,base=nf4"},
        {"--qlora", "--lora r=16,alpha=32,base=nf4"},
        {"--gradient_checkpointing true", "activation_checkpointing.number_checkpoints=N"},
        {"--sample_packing true", "`dslaunch data prepare --pack`"},
        {"--eval_strategy steps", "--eval-interval N"},
        {"--logging_steps 1", "metrics.jsonl"},
        {"--lora_r 8", "--lora r=16"},
        {"-N 2", "--num-nodes N with a --hostfile (srun's -N)"},
        {"-np 4", "--num-gpus N for N workers on each host"},
        {"--ntasks-per-node=2", "--num-gpus N for N workers on each host"},
        {"--optim adamw_torch", "--set optimizer.type=AdamW"},
        {"--tp 2", "--num_gpus N --set dslaunch.tensor.size=2"},
        {"--tensor-parallel-size 2", "--num_gpus N --set dslaunch.tensor.size=2"},
        {"--pp 2", "--num_gpus N --set pipeline.stages=2"},
        {"--pipeline_parallel_size 2", "--num_gpus N --set pipeline.stages=2"},
        {"--cp 2", "--num_gpus N --set dslaunch.sequence.size=2"},
        {"--context_parallel_size 2", "--num_gpus N --set dslaunch.sequence.size=2"},
        {"--fsdp full_shard", "--set zero_optimization.stage=3"},
        {"--dp 2", "the degree of data parallelism is the number of ranks"},
        {"--ep 2", "expert parallelism is not available yet"},
        {"--zero3", "--set zero_optimization.stage=3"},
        {"--zero-2", "--set zero_optimization.stage=2"}};
    for (const auto& [typed, here] : cases) {
        CAPTURE(typed);
        CHECK_THAT(mistyped_options_refusal(std::string("t.pt ") + typed), Catch::Contains("`: "));
        CHECK_THAT(mistyped_options_refusal(std::string("t.pt ") + typed), Catch::Contains(here));
    }
}

TEST_CASE("values of other tools are answered with what they are here") {
    for (const auto& [typed, here] :
         {std::pair{"--seed -1", "for the default, 1234, leave the option out"},
          {"--save-interval epoch", "give a number of steps"},
          {"--eval-interval no", "to turn this option off, give 0"},
          {"--launcher mpirun", "local: use openmpi"},
          {"--launcher torchrun", "leave --launcher out"},
          {"--launcher kubernetes", "use join"},
          {"--launcher xyz", "join, local"}})
        CHECK_THAT(mistyped_options_refusal(std::string("t.pt ") + typed), Catch::Contains(here));
    // Two letters that share none are no mistyped option.
    CHECK_THAT(mistyped_options_refusal("t.pt --zq 2"), Catch::EndsWith("; --help lists all"));
}

TEST_CASE("a program in PATH is refused only if it is near a subcommand's own name") {
    const test::TemporaryFolder programs;
    // Other words for subcommands, words near these, and one that is near `plan`.
    for (const char* name : {"convert", "list", "lisp", "doctors", "plann"}) {
        INFO(name);
        const std::string path = programs.path() + "/" + name;
        test::write_file(path, "#!/bin/sh\necho started\n");
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
        test::JobProcess process(
            programs, {"/usr/bin/env", "PATH=" + programs.path() + ":/usr/bin:/bin",
                       std::string(test::binary_dir()) + "/dslaunch", "--num_gpus", "1", name});
        const int code = process.wait();
        INFO(process.err());
        const bool is_refused = name == std::string("plann");
        CHECK(code == (is_refused ? 64 : 0));
        CHECK(test::mentions(process.out(), "started") == !is_refused);
        CHECK(test::mentions(process.err(), "did you mean `plan`") == is_refused);
    }
}

TEST_CASE("a word that an option does not take is refused by that option's name") {
    for (const char* line : {"--bf16 True t.pt", "t.pt --bf16 True", "t.pt --fp16 true",
                             "t.pt --new-data True", "--resume True t.pt", "t.pt --dry-run True"})
        CHECK_THAT(mistyped_options_refusal(line), Catch::Contains("takes no value: leave `"));
    CHECK_THAT(mistyped_options_refusal("t.pt -o r --resume_from_checkpoint true"),
               Catch::Contains("takes no value: leave `true` out"));
    CHECK_THAT(mistyped_options_refusal("t.pt --bf16=true"),
               Catch::Contains("takes no value: write --bf16 alone"));
    CHECK_THAT(mistyped_options_refusal("t.pt -o -"),
               Catch::Contains("a folder is expected, not stdout"));
    CHECK_THAT(mistyped_options_refusal("t.pt --bf16 False"),
               Catch::Contains("--bf16 takes no value: leave both it and `False` out"));
    // A program may have this name.
    CHECK(test::typed_options("--no-python true").target == "true");
    CHECK_THAT(mistyped_options_refusal("t.pt --lora r=8 alpha=16"),
               Catch::Contains("; write the value of --lora as one word: r=8,alpha=16"));
    CHECK_THAT(mistyped_options_refusal("t.pt --data a.bin b.bin"),
               Catch::Contains("--data takes only one file"));
    CHECK_THAT(mistyped_options_refusal("t.pt -o run1 run2"),
               Catch::Contains("--output takes only one folder"));
    for (const char* line : {"t.pt --data a.bin --steps 2 x", "t.pt --data a.bin --batch-size 2 x"})
        CHECK_THAT(mistyped_options_refusal(line), !Catch::Contains("shell"));
}

TEST_CASE("a number in another spelling is named in ours") {
    CHECK_THAT(mistyped_options_refusal("t.pt --steps 1e1"), Catch::Contains("; write 10"));
    CHECK_THAT(mistyped_options_refusal("t.pt --micro-batch 4.0"), Catch::Contains("; write 4"));
    for (const char* other : {"0.5", "1e99", "-1e1", "x"})
        CHECK_THAT(mistyped_options_refusal(std::string("t.pt --steps ") + other),
                   !Catch::Contains("write"));
    const std::pair<const char*, const char*> times[] = {{"10m", "600"},       {"1h30m", "5400"},
                                                         {"01:00:00", "3600"}, {"02:30", "150"},
                                                         {"1d", "86400"},      {"90s", "90"}};
    for (const auto& [typed, seconds] : times)
        for (const char* option : {"--time-limit", "--timeout", "--grace", "--connect-timeout"})
            CHECK_THAT(mistyped_options_refusal(fmt::format("t.pt {} {}", option, typed)),
                       Catch::Contains(fmt::format("give the time in seconds: {}", seconds)));
    for (const char* typed : {"2e\u20134", "\u22121"})
        CHECK_THAT(mistyped_options_refusal(fmt::format("t.pt --lr {}", typed)),
                   Catch::Contains("its dash is not a minus sign"));
    for (const char* line : {"t.pt --lr 2,5e-4", "t.pt --steps 1,000"})
        CHECK_THAT(mistyped_options_refusal(line),
                   Catch::Contains("write numbers with a decimal point"));
    CHECK_THAT(
        mistyped_options_refusal("recipe.yml"),
        Catch::Contains("is not a model. If it is a ds_config, use: dslaunch MODEL --data FILE"));
    CHECK_THAT(mistyped_options_refusal("t.pt --gpus all"), Catch::Contains("use --num-gpus N"));
    CHECK_THAT(mistyped_options_refusal("t.ipynb"),
               Catch::Contains("jupyter nbconvert --to script t.ipynb"));
    CHECK_THAT(mistyped_options_refusal("t.pt --local_rank 0"),
               Catch::Contains("each rank gets its local rank in LOCAL_RANK"));
    CHECK_THAT(mistyped_options_refusal("t.pt --overwrite_output_dir"),
               Catch::Contains("existing runs are never overwritten"));
    CHECK_THAT(mistyped_options_refusal("t.pt --model m"),
               Catch::Contains("as the first argument"));
    for (const char* word : {"latest", "last", "true", "True"})
        CHECK(test::typed_options(fmt::format("t.pt --resume={}", word)).resume == "auto");
    CHECK_THAT(mistyped_options_refusal("t.pt --device cuda:1"),
               Catch::Contains("CUDA_VISIBLE_DEVICES=1 "));
    CHECK_THAT(mistyped_options_refusal("t.pt --device gpu"), Catch::Contains("use --device cuda"));
    CHECK_THAT(test::error_of(ExitCode::kSetup, [] { make_job("--nproc_per_node gpu t.pt"); }),
               Catch::Contains("--nproc_per_node gpu: found no GPU on this machine"));
}

TEST_CASE("what DeepSpeed, axolotl and Trainer take is told its place here") {
    CHECK_THAT(mistyped_options_refusal("--autotuning run train.py"),
               Catch::Contains("train.py is a script") &&
                   Catch::Contains("dslaunch tune MODEL --data FILE"));
    CHECK_THAT(mistyped_options_refusal("t.pt --force"),
               Catch::Contains("existing runs are never overwritten"));
    CHECK_THAT(mistyped_options_refusal("t.pt --data d --save-best 3"),
               Catch::Contains("--save-best=3"));
    CHECK_THAT(mistyped_options_refusal("t.pt --wall_clock_breakdown"),
               Catch::Contains("use --set wall_clock_breakdown=true"));
    CHECK_THAT(mistyped_options_refusal("t.pt --tensorboard"),
               Catch::Contains("--set tensorboard.enabled=true"));
    CHECK_THAT(mistyped_options_refusal("t.pt --check-equal-interval 2"),
               Catch::Contains("use --set dslaunch.check_equal_interval=VALUE"));
    CHECK_THAT(mistyped_options_refusal("t.pt --zero_optimization.stage 3"),
               Catch::Contains("use --set zero_optimization.stage=VALUE"));
    CHECK_THAT(mistyped_options_refusal("train recipe.yml"), Catch::Contains("Recipes of axolotl"));
    CHECK_THAT(mistyped_options_refusal("t.pt --resume best"),
               Catch::Contains("write --resume=best"));
    CHECK_THAT(mistyped_options_refusal("--resume best t.pt"),
               Catch::Contains("write --resume=best"));
    CHECK_THAT(mistyped_options_refusal("t.pt --resume latest"),
               Catch::Contains("leave `latest` out"));
    CHECK_THAT(mistyped_options_refusal("t.pt --resume run1"),
               Catch::Contains("write --resume=DIR"));
}

TEST_CASE("two values for one key are refused, by whichever option they come") {
    for (const char* line :
         {"t.pt --set optimizer.params.lr=1e-3 --lr 5e-5",
          "t.pt --lr 5e-5 --set optimizer.params.lr=1e-3", "t.pt --bf16 --set bf16.enabled=false",
          "t.pt --lora r=8 --set dslaunch.lora.r=4", "t.pt --data a --set dslaunch.data.train=b",
          "t.pt --set a=1 --set a=2"})
        CHECK_THAT(mistyped_options_refusal(line), Catch::Contains(": give only one of them"));
    for (const char* line :
         {"t.pt --set optimizer.params.lr=1e-3 --lr 0.001", "t.pt --set a=1 --set a=1.0",
          "t.pt --data a --set dslaunch.data.train=a", "t.pt --steps 5 --set dslaunch.steps=5"})
        CHECK_NOTHROW(test::typed_options(line));
}
