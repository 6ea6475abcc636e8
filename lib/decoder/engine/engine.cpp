#include "decoder/engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "decoder/engine/request_check.h"

namespace dslaunch::decoder {

const char* end_name(TextEnd end) {
    if (end == TextEnd::kStop) return "stop";
    return end == TextEnd::kLength || end == TextEnd::kContext ? "length" : nullptr;
}

Engine::Engine(BatchRunner& runner, const EngineOptions& options)
    : runner_(runner), options_(options), pool_(static_cast<int32_t>(runner.pages())) {
    DSL_CHECK(options.sequences_max > 0 && options.sequences_max <= runner.rows_max() &&
                  options.queue_max >= 0,
              "engine options");
}

bool Engine::has_room() const {
    return std::ssize(waiting_) < options_.queue_max ||
           (waiting_.empty() && std::ssize(running_) < options_.sequences_max);
}

void Engine::check(const Request& request) const {
    check_request(request, runner_);
}

RequestId Engine::add(Request request) {
    DSL_CHECK(has_room() && request.tokens_max > 0, "the queue is full, or no token was requested");
    check(request);
    const int64_t prompt_numel = std::ssize(request.prompt);
    waiting_.push_back({next_id_,
                        std::move(request.prompt),
                        0,
                        prompt_numel,
                        request.tokens_max,
                        request.end_tokens,
                        {},
                        Sampler(request.sampling, {request.end_tokens, request.tokens_max})});
    return next_id_++;
}

void Engine::cancel(RequestId id) {
    for (Sequences* list : {&running_, &waiting_})
        for (auto at = list->begin(); at != list->end(); ++at)
            if (at->id == id) {
                pool_.give_back(at->pages);
                list->erase(at);
                return;
            }
}

// Admits waiting sequences, in order, while their whole text and the next token fit in the cache.
void Engine::admit() {
    while (!waiting_.empty() && std::ssize(running_) < options_.sequences_max) {
        Sequence& next = waiting_.front();
        // One page for each running sequence stays free, so that a sequence that was just begun is
        // not preempted at once.
        const int64_t wanted = pages_for(std::ssize(next.text));
        if (!running_.empty() && wanted + std::ssize(running_) > pool_.pages_free()) return;
        if (!pool_.grow(next.pages, std::ssize(next.text))) return;
        running_.splice(running_.end(), waiting_, waiting_.begin());
    }
}

void Engine::preempt_last() {
    Sequence& last = running_.back();
    pool_.give_back(last.pages);
    last.computed = 0;
    waiting_.splice(waiting_.begin(), running_, std::prev(running_.end()));
    ++counts_.preempted;
}

Batch Engine::next_batch(std::vector<Sequence*>& owners) {
    // Allocates a page for each running sequence whose next position needs one, beginning with the
    // oldest sequence. Preempts the newest sequences if the cache is full. The oldest sequence
    // alone always fits, because add() and end_of() limit its length.
    for (auto at = running_.begin(); at != running_.end(); ++at)
        while (!pool_.grow(at->pages, std::ssize(at->text))) {
            const bool is_last = std::next(at) == running_.end();
            DSL_CHECK(!is_last || at != running_.begin(),
                      "a single sequence does not fit in the cache");
            if (is_last) at = std::prev(at);
            preempt_last();
        }
    Batch batch;
    int64_t rows_left = runner_.rows_max();
    const auto take = [&](Sequence& sequence, int64_t rows_max) {
        const int64_t rows = std::min(std::ssize(sequence.text) - sequence.computed, rows_max);
        const auto index = static_cast<int32_t>(batch.sequences.size());
        batch.sequences.push_back({sequence.pages});
        owners.push_back(&sequence);
        for (int64_t i = 0; i < rows; ++i) {
            const int64_t position = sequence.computed + i;
            const bool is_last = position + 1 == std::ssize(sequence.text);
            batch.rows.push_back(
                {sequence.text[static_cast<size_t>(position)], static_cast<int32_t>(position),
                 index, static_cast<int32_t>(std::max(position + 1, sequence.prompt_numel)),
                 is_last});
        }
        sequence.computed += rows;
        rows_left -= rows;
    };
    for (Sequence& sequence : running_)
        if (std::ssize(sequence.text) - sequence.computed == 1) take(sequence, 1);
    for (Sequence& sequence : running_)
        if (rows_left > 0 && sequence.computed < std::ssize(sequence.text) &&
            std::ranges::find(owners, &sequence) == owners.end())
            take(sequence, rows_left);
    return batch;
}

TextEnd Engine::end_of(const Sequence& sequence) const {
    if (std::ranges::find(sequence.end_tokens, sequence.text.back()) != sequence.end_tokens.end())
        return TextEnd::kStop;
    if (sequence.tokens_left == 0) return TextEnd::kLength;
    // The next step would compute the position of the last token. The text ends if the model or the
    // cache has no such position.
    const int64_t positions = runner_.positions_max();
    return std::ssize(sequence.text) > positions ? TextEnd::kContext : TextEnd::kNone;
}

std::vector<MadeToken> Engine::step() {
    DSL_CHECK(!is_idle(), "nothing to do");
    admit();
    DSL_CHECK(!running_.empty(), "no sequence fits");
    std::vector<Sequence*> owners;
    const Batch batch = next_batch(owners);
    const std::span<float> logits = runner_.run(batch);
    ++counts_.steps;
    std::vector<MadeToken> made;
    const auto vocabulary = static_cast<size_t>(runner_.vocabulary());
    size_t next = 0;
    for (const BatchRow& row : batch.rows) {
        if (row.position < owners[row.sequence]->prompt_numel) ++counts_.prompt_tokens;
        if (!row.wants_logits) continue;
        Sequence& sequence = *owners[row.sequence];
        const std::span<float> of_row = logits.subspan(vocabulary * next++, vocabulary);
        if (!are_finite(of_row)) {
            made.push_back({sequence.id, 0, TextEnd::kBroken});
            continue;
        }
        const int32_t token = sequence.sampler.next(of_row, sequence.text);
        sequence.text.push_back(token);
        --sequence.tokens_left;
        ++counts_.made_tokens;
        made.push_back({sequence.id, token, end_of(sequence)});
    }
    for (const MadeToken& token : made)
        if (token.end != TextEnd::kNone) cancel(token.request);
    return made;
}

void Engine::clear() noexcept {
    for (Sequences* list : {&running_, &waiting_}) {
        for (Sequence& sequence : *list) pool_.give_back(sequence.pages);
        list->clear();
    }
}

EngineCounts Engine::counts() const {
    EngineCounts counts = counts_;
    counts.running = std::ssize(running_);
    counts.waiting = std::ssize(waiting_);
    counts.pages = pool_.pages();
    counts.pages_used = pool_.pages() - pool_.pages_free();
    return counts;
}

}  // namespace dslaunch::decoder
