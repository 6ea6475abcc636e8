// dsworker serve: serves a model over OpenAI's protocol, on one rank or shared by a job's ranks.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/machine/memory_limits.h"
#include "base/text.h"
#include "decoder/sample/sampler.h"
#include "server/http_server.h"
#include "server/text_service.h"
#include "worker/rank_process.h"
#include "worker/roles.h"
#include "worker/text/chat_input.h"
#include "worker/text/decoder_session.h"
#include "worker/text/generation_defaults.h"
#include "worker/text/prompts.h"
#include "worker/text/signal_watch.h"
#include "worker/text/text_files.h"

namespace dslaunch::worker {
namespace {

struct ServeArguments {
    DecoderArguments decoder;
    server::ServerOptions server;
    decoder::EngineOptions engine;
    SamplingArguments sampling;
    std::string template_kwargs;
    int64_t cache_tokens = 0;
    int64_t port = 8000;
    std::string api_key_file;
    double grace_s = 30;
};

void declare(CommandLine& app, ServeArguments& arguments) {
    app.add("MODEL", arguments.decoder.model, "a Hugging Face folder, or a GGUF file").required();
    app.add("--host ADDRESS", arguments.server.host,
            "address to listen on; if other machines can reach it, --api-key-file is required")
        .show_default();
    app.add("--port N", arguments.port, "port to listen on; 0: any free port")
        .show_default()
        .range(int64_t{0}, int64_t{65'535});
    app.add("--api-key-file FILE", arguments.api_key_file,
            "clients must send the first line of FILE as their API key; only the owner may have "
            "access to FILE (mode 600)");
    app.add("--grace SECONDS", arguments.grace_s,
            "how long unfinished texts may continue after Ctrl-C or SIGTERM; a second signal ends "
            "them at once")
        .show_default()
        .range(0.0, 86'400.0);
    app.add("--name NAME", arguments.server.model, "name of the model; default: its folder's name");
    app.add("--sequences N", arguments.engine.sequences_max,
            "maximum number of texts that are generated at the same time")
        .show_default()
        .range(int64_t{1}, int64_t{512});
    app.add("--queue N", arguments.engine.queue_max,
            "maximum number of waiting texts; further ones are refused (429)")
        .show_default()
        .range(int64_t{0}, int64_t{1'000'000});
    app.add("--cache-tokens N", arguments.cache_tokens,
            "size of the cache of keys and values in tokens, for all texts together; 0: two "
            "contexts, at least 16384, or what fits in memory")
        .show_default()
        .range(int64_t{0}, kPositionsMax);
    app.add("--context N", arguments.decoder.context,
            "maximum number of tokens in a text; 0: the model's own limit")
        .show_default()
        .at_least(0);
    declare_decoder(app, arguments.decoder);
    declare_cpu(app, arguments.decoder);
    app.group("defaults for requests");
    declare_sampling(app, arguments.sampling);
    app.add("--chat-template-kwargs JSON", arguments.template_kwargs,
            "variables of the chat template, e.g. '{\"enable_thinking\": false}'");
}

constexpr size_t kFileBytesMax = 4096;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

// Returns the first line of PATH: the key that clients must send. Throws Error{kInput} if users
// other than the owner may read the file, if it cannot be read, or if its first line is no valid
// key.
std::string read_key_file(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts {};
    if (!file.valid() || ::fstat(file.get(), &facts) != 0)
        fail(ExitCode::kInput, "--api-key-file {}: {}", printable(path), errno_text(errno));
    if (S_ISREG(facts.st_mode) && (facts.st_mode & kOthers) != 0)
        fail(ExitCode::kInput,
             "--api-key-file {}: its mode is {:o}, so other users of this machine may know the "
             "key: `chmod 600` the file, and use a new key",
             printable(path), facts.st_mode & 07777);
    std::string text(kFileBytesMax, '\0');
    const ssize_t bytes = read_full(file.get(), std::as_writable_bytes(std::span(text)));
    if (bytes < 0)
        fail(ExitCode::kInput, "--api-key-file {}: {}", printable(path),
             errno_text(static_cast<int>(-bytes)));
    text.resize(static_cast<size_t>(bytes));
    const std::string key(trim(text.substr(0, text.find('\n'))));
    if (key.empty())
        fail(ExitCode::kInput, "--api-key-file {}: its first line is empty", printable(path));
    if (!std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; }))
        fail(ExitCode::kInput,
             "--api-key-file {}: its first line contains blanks or non-ASCII characters, which "
             "clients cannot send in a header; use letters, digits and punctuation",
             printable(path));
    if (key.size() == text.size() && text.size() == kFileBytesMax)
        fail(ExitCode::kInput, "--api-key-file {}: its first line is longer than {} bytes",
             printable(path), kFileBytesMax - 1);
    return key;
}

// Opens SESSION with the cache that the user asked for. If the user named no size, uses the default
// size, or as much of it as fits.
void open_session(DecoderSession& session, const ServeArguments& arguments) {
    constexpr int64_t kPositionsMin = 16'384, kPositionsLeast = 1024;
    const int64_t context = session.context();
    if (arguments.cache_tokens > 0) return session.open(decoder::pages_for(arguments.cache_tokens));
    session.open(decoder::pages_for(std::max(2 * context, kPositionsMin)),
                 decoder::pages_for(std::min(context, kPositionsLeast)));
}

// Returns an interval short enough that the other ranks, which wait TIMEOUT seconds, do not give
// up.
Duration idle_interval(double timeout_s) {
    return std::chrono::milliseconds(static_cast<int64_t>(std::min(5.0, timeout_s / 3) * 1e3));
}

server::ChatRenderer renderer_of(const TextFiles& files, const ServeArguments& arguments) {
    if (!files.has_chat()) return {};
    const text::TemplateVariables more =
        template_variables_of(arguments.template_kwargs, "--chat-template-kwargs");
    return [&files, more](const server::ApiRequest& chat, int64_t bytes_max) {
        text::jinja::Limits limits;
        limits.memory_bytes_max = std::min(limits.memory_bytes_max, static_cast<size_t>(bytes_max));
        return files.chat_text(chat_input_of(chat, more), limits);
    };
}

// Returns the number of bytes that all requests together may use: a quarter of the memory that the
// system has left, but at least 4 MiB and not more than OTHERWISE. If no memory limit is known,
// returns OTHERWISE.
int64_t requests_bytes_max(int64_t otherwise) {
    constexpr int64_t kPart = 4, kLeast = int64_t{4} << 20;
    const auto tightest = tightest_share(read_memory_state().limits, 1);
    if (!tightest) return otherwise;
    return std::clamp(tightest->left.value / kPart, kLeast, otherwise);
}

server::ServerOptions server_options(const ServeArguments& arguments, const TextFiles& files,
                                     int64_t context) {
    server::ServerOptions options = arguments.server;
    const storage::GenerationConfig& config = files.generation();
    options.sampling = sampling_of(arguments.sampling, config);
    options.tokens_max = config.max_new_tokens;
    options.length_max = config.max_length;
    options.stops = config.stop_strings;
    options.first_token = files.first_token();
    tell_generation("serve", arguments.sampling, config);
    if (!files.end_source().empty())
        log_info("serve", "a text ends at the token {}", files.end_source());
    options.port = static_cast<int>(arguments.port);
    options.context = context;
    options.requests_bytes_max = requests_bytes_max(options.requests_bytes_max);
    if (options.model.empty())
        options.model =
            arguments.decoder.gguf.empty()
                ? std::filesystem::path(arguments.decoder.model + "/").parent_path().filename()
                : std::filesystem::path(arguments.decoder.gguf).stem();
    return options;
}

// Serves until a signal, the launcher or a failure asks it to end.
void serve_session(const ServeArguments& arguments, const server::ServerOptions& options,
                   DecoderSession& session, const TextFiles& files, SignalWatch& watch) {
    decoder::EngineOptions engine = arguments.engine;
    engine.sequences_max = std::min(engine.sequences_max, session.runner().rows_max());
    server::TextService service(session.runner(), files.require_codec(), engine, files.end_tokens(),
                                {[&](bool goes_on) {
                                     if (goes_on) session.keep_waiting();
                                 },
                                 idle_interval(arguments.decoder.timeout_s)});
    server::HttpServer server(service, files.require_codec(), renderer_of(files, arguments),
                              options);
    const int port = server.bind();
    const bool is_v6 = options.host.find(':') != std::string::npos;
    log_info("serve",
             "serves `{}` at http://{}:{}/v1, up to {} texts at once, with a cache of {} tokens; "
             "Ctrl-C stops the server",
             printable(options.model), is_v6 ? "[" + options.host + "]" : options.host, port,
             engine.sequences_max, session.pages() * decoder::kPagePositions);
    watch.serve(server, service,
                std::chrono::milliseconds(static_cast<int64_t>(arguments.grace_s * 1e3)));
    if (const std::exception_ptr error = service.error()) std::rethrow_exception(error);
}

// Refuses a --host that also contains the port. An IPv6 address has several colons and is accepted.
void require_host(const std::string& host) {
    const std::vector<std::string> parts = split(host, ':');
    if (parts.size() == 2 && parse_int(parts.back()))
        fail(ExitCode::kUsage, "--host {}: the port needs its own option: --host {} --port {}",
             printable(host), printable(parts.front()), parts.back());
}

// Splits an adapter in vLLM's form NAME=DIR. NAME becomes the model's name if --name is not given.
void split_named_adapter(ServeArguments& arguments) {
    std::string& adapter = arguments.decoder.adapter;
    const size_t equals = adapter.find('=');
    std::error_code unreadable;
    if (equals == std::string::npos || equals == 0 || std::filesystem::exists(adapter, unreadable))
        return;
    if (arguments.server.model.empty()) arguments.server.model = adapter.substr(0, equals);
    adapter = adapter.substr(equals + 1);
    if (adapter.empty())
        fail(ExitCode::kUsage, "--adapter {0}=: no folder follows `=`; write --adapter {0}=DIR",
             printable(arguments.server.model));
}

void serve_model(ServeArguments& arguments, RankProcess& process) {
    SignalWatch::block_signals();
    if (!process.is_first()) {
        DecoderSession session(arguments.decoder, process);
        open_session(session, arguments);
        return session.finish();
    }
    SignalWatch watch(process);
    require_host(arguments.server.host);
    if (!arguments.api_key_file.empty())
        arguments.server.api_key = read_key_file(arguments.api_key_file);
    server::HttpServer::require_key(arguments.server);
    DecoderSession session(arguments.decoder, process);
    const TextFiles files(session.text_folder(), session.folder().config.vocabulary);
    static_cast<void>(files.require_codec(kTokenizerWanted));
    open_session(session, arguments);
    const int64_t positions = session.pages() * decoder::kPagePositions;
    if (positions < session.context())
        log_info("serve",
                 "a text may have at most {} tokens, because the cache has no room for more; the "
                 "model's context is {}",
                 positions, session.context());
    serve_session(arguments,
                  server_options(arguments, files, std::min(session.context(), positions)), session,
                  files, watch);
    session.finish();
}

}  // namespace

int serve_main(int argc, char** argv) {
    CommandLine app(
        {.does = "Serves a language model over HTTP with OpenAI's completions and chat protocol. "
                 "Options that choose hosts and ranks (dslaunch run --help), such as --hostfile, "
                 "come after MODEL; the ranks then share the model.",
         .examples = {"dslaunch serve SmolLM2-135M-Instruct --port 8000",
                      "dslaunch serve Qwen2.5-7B --hostfile hostfile --weights int8"},
         .docs = "docs/guide/generate.md"},
        "dslaunch serve");
    ServeArguments arguments;
    declare(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;
    split_named_adapter(arguments);
    static_cast<void>(sampling_of(arguments.sampling, {}));  // throws if a value is out of range
    static_cast<void>(template_variables_of(arguments.template_kwargs, "--chat-template-kwargs"));
    return run_with_decoder(arguments.decoder, "serve",
                            [&](RankProcess& process) { serve_model(arguments, process); });
}

}  // namespace dslaunch::worker
