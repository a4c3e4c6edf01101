"""The keys of the data: what they are, what is made of them, and their rows.

  model_assets, data_transform    how records become tokens
  dataset, dataset.data_config    which records or tokens there are
  dataloader                      how they fill rows, and in which order

`only` names the use in which a key has a meaning (`config_uses.py`).
"""

from hpgrain.config_key import (
  INT32_MAX,
  MAPPING,
  NAMES,
  NUMBERS,
  PATHS,
  ROW_MAP,
  Key,
  section,
)

_BY_RANK = (
  "rows would then depend on the number of processes, and every process would"
  " see every record; here each process reads what its rows need, whatever the"
  " mesh, and no record twice"
)

# fmt: off
DATA_KEYS: tuple[Key, ...] = (
  *section("model_assets",
    Key("chat_template", str, None,
        "`chatml`, `plain`, a Jinja template, or `tokenizer` for the"
        " tokenizer's own, as if unset.", only="conversation"),
  ),
  *section("data_transform",
    Key("data_type", str, None,
        "What records are: text, chats, or token ids; unset is `plaintext`"
        " online, and `identity` for tokenized corpora.",
        legal=("plaintext", "conversation", "pretokenized", "identity")),
    Key("max_seq_len", int, 2048,
        "Positions an example has at most; longer text and ids give several.",
        minimum=1, maximum=INT32_MAX - 1, only="online"),
    Key("text_keys", NAMES, None,
        "The field that is read, or several, of which the first that a record"
        " has; unset is `text`, or of chats messages, conversation,"
        " conversations.", only="text"),
    Key("template", str, None,
        "A format string over fields instead, such as"
        " '{question}\\n{answer}'.", only="plaintext"),
    Key("backend", str, "auto",
        "What tokenizes: `auto` is the faster one where it gives the same"
        " ids.", legal=("auto", "huggingface", "gigatoken"), only="plaintext"),
    Key("special_tokens_in_text", str, "as_is",
        "A special token's string in a text becomes its id (`as_is`), is"
        " encoded like any text (`plain`), or is an error.",
        legal=("as_is", "plain", "error"), only="plaintext"),
    Key("truncation", str, "error",
        "What becomes of a chat longer than max_seq_len.",
        legal=("error", "right", "left_turns", "drop"), only="conversation"),
    Key("trained_roles", tuple, ("assistant",), "Whose turns are learnt.",
        only="conversation"),
    Key("role_names", MAPPING, None,
        "More names of roles: {'bot': 'assistant'}.", only="conversation"),
    Key("template_variables", MAPPING, None,
        "What else the chat template gets: {'enable_thinking': False}.",
        only="conversation"),
    Key("template_date", str, None,
        "A day, as 2025-01-31, for templates that write today's.",
        only="conversation"),
    Key("records_are_shifted", bool, None,
        "Whether labels in records are the next position's; unset is as"
        " get_batch.labels_are_shifted.", only="pretokenized"),
  ),
  *section("dataset",
    Key("kind", str, "indexed",
        "What the data is: tokenized corpora, or records that are tokenized"
        " while training.", legal=("indexed", "online")),
    Key("data_path", PATHS, None,
        "What the splits share: prefixes of .idx/.bin pairs; online files,"
        " folders or patterns (a list is one source, weights or names make"
        " several)."),
    Key("train_data_path", PATHS, None, "The same of the train split alone."),
    Key("valid_data_path", PATHS, None, "The same of the valid split alone."),
    Key("test_data_path", PATHS, None, "The same of the test split alone."),
  ),
  *section("dataset.data_config",
    Key("dataset_type", str, "mapping",
        "How records are read: `mapping` by number, `iterable` in turn.",
        legal=("mapping", "iterable"), only="online"),
    Key("hf_dataset_name", str, None,
        "A Hugging Face dataset; wins over data_path.", only="online"),
    Key("hf_config_name", str, None, "Its subset.", only="hub"),
    Key("revision", str, None, "Its branch, tag or commit.", only="hub"),
    Key("hf_train_split", str, "train",
        "Its split for train, or a part such as 'train[:98%]'.", only="hub"),
    Key("hf_valid_split", str, None, "The same for valid.", only="hub"),
    Key("hf_test_split", str, None, "The same for test.", only="hub"),
    Key("cache_dir", str, None, "Where `datasets` keeps it; unset is its own"
        " place.", only="hub"),
    Key("format", str, None, "Format of the files; unset goes by their names.",
        legal=("json", "text", "csv", "parquet", "arrow", "array_record"),
        only="files"),
    Key("shuffle", bool, True,
        "Mix the records of train, each epoch anew: all of them by number,"
        " within shuffle_buffer_size in turn.", only="online"),
    Key("shuffle_buffer_size", int, 10000,
        "Records that are mixed among each other.", minimum=1,
        only="streams"),
    Key("split_by_data_parallel", bool, True,
        "Known to the reference; each process reads what its rows need.",
        refused={False: _BY_RANK}, only="online"),
    Key("lengths", str, None,
        "`table` tokenizes once to know every length, `stream` never looks"
        " ahead; unset is `table` by number, `stream` in turn.",
        legal=("table", "stream"), only="online"),
    Key("keep_tokens", bool, False,
        "Keep what was tokenized for the table beside it, and read that.",
        only="table"),
    Key("seq_length", int, 4096, "Positions of a row.", minimum=1,
        maximum=INT32_MAX - 1, only="indexed"),
    Key("split", str, None,
        "Shares of train, valid and test in `data_path`; unset is"
        " '969, 30, 1', online all of it train."),
    Key("order", str, "stable",
        "The order of rows: `stable` cuts documents as stored, `documents`"
        " mixes them each epoch, `megatron` is Megatron-core's.",
        legal=("stable", "documents", "megatron"), only="cut"),
    Key("mock_data", bool, False, "Made-up rows; no file is read.",
        only="cut"),
    Key("is_dataset_from_mr", bool, False,
        "The sequences are records cut to seq_length (+ 1) beforehand.",
        only="cut"),
    Key("simple_blend", str, "no",
        "How pre-cut sources without weights take turns.",
        legal=("no", "inter", "intra"), aliases={False: "no"}, only="cut"),
    Key("data_lazy_load", bool, False, "Open files at first use.", only="cut"),
    Key("skip_data_check", bool, False,
        "Leave out the check of record lengths.", only="cut"),
    Key("add_extra_token_to_sequence", bool, True,
        "Read one token more, the last position's label.", only="cut"),
    Key("drop_last_partial_validation_sequence", bool, True,
        "Drop the tail of valid and test that does not fill a row.",
        only="cut"),
    Key("create_ltor_fields_in_dataloader", bool, False,
        "Masks as Megatron's loader makes them: documents end at eod_id, and"
        " the loader's model_inputs has attention_mask, True where masked.",
        only="cut"),
    Key("data_cache_path", str, None,
        "Folder of what is found once: indices of orders that have one, places"
        " of records in text files, lengths; unset: in memory."),
    Key("data_index_cache", bool, None,
        "Known to the reference; has no meaning here.", only="indexed"),
    Key("contiguous", bool, True,
        "The .bin holds the sequences back to back, in order.",
        only="indexed"),
    Key("mmap", bool, True, "Map the .bin; False reads it with pread.",
        only="indexed"),
    Key("max_open_files", int, 512,
        "Most files kept mapped at a time, over all loaders of the process;"
        " the last `build` decides.", minimum=2, only="indexed"),
    Key("vocab_size", int, None,
        "Number of ids; unset takes the tokenizer's, else the manifest's.",
        minimum=1, maximum=INT32_MAX),
    Key("eod_id", int, None, "The id that ends a document; unset takes the"
        " tokenizer's, else the manifest's.", minimum=0, maximum=INT32_MAX),
    Key("pad_id", int, None, "The id of padding in pre-cut records.",
        minimum=0, maximum=INT32_MAX, only="cut"),
  ),
  *section("dataloader",
    Key("type", str, "fixed",
        "How rows are filled: `dynamic` packs whole examples or documents up"
        " to token_budget; `fixed` takes micro_batch_size examples a row, of"
        " tokenized corpora seq_length tokens.", legal=("fixed", "dynamic")),
    Key("token_budget", int, None,
        "Positions of a packed row; unset is micro_batch_size x max_seq_len,"
        " of tokenized corpora x seq_length.", minimum=1,
        maximum=INT32_MAX - 1, only="packed"),
    Key("packer", str, "best_fit",
        "Which examples share a row: `best_fit` wastes least, `first_fit`"
        " is the reference's, `concat` cuts where a row is full, `pad` takes"
        " one a row.", legal=("best_fit", "first_fit", "concat", "pad"),
        only="packed"),
    Key("min_buffered_samples", int, 200,
        "Examples that wait before a row is made.", minimum=1,
        only="first_fit"),
    Key("pack_window", int, 64, "Examples that best_fit sees at a time.",
        minimum=1, maximum=2**16, only="lookahead"),
    Key("plan_window", int, 16384, "Records that are packed together.",
        minimum=1, maximum=2**24, only="plans"),
    Key("overlong", str, "error",
        "What becomes of an example longer than token_budget.",
        legal=("error", "split", "truncate", "drop", "own_row"),
        only="packed"),
    Key("length_buckets", NUMBERS, (),
        "Lengths that a batch may be padded to, ascending; empty is the row's"
        " own.", minimum=1, maximum=INT32_MAX - 1, only="examples"),
    Key("max_segments", int, None,
        "Segments of a row, that of the padding included; unset has no limit.",
        minimum=2, only="packed"),
    Key("segment_multiple", int, 1,
        "Room of a segment is rounded up to a multiple.", minimum=1,
        only="packed"),
    Key("num_streams", int, 64,
        "Streams that records are dealt to; a checkpoint keeps its own.",
        minimum=1, maximum=2**20, only="streams"),
    Key("balance_shares", int, None,
        "Equal parts of a batch that get near-equal attention cost; the data"
        " axes must not tear one.",
        minimum=2, only="plans"),
    Key("balance_rows", int, None,
        "Rows within which that is done; unset is a batch's.", minimum=2,
        only="balanced"),
    Key("num_workers", int, 0,
        "Processes that run the transform; 0 runs it in threads.", minimum=0,
        only="online"),
    Key("handover_bytes", int, 256 * 2**20,
        "Memory of examples that wait for their stream, before a file is used.",
        minimum=0, only="streams"),
    Key("spill_folder", str, None,
        "Where that file is; unset is the system's temporary folder.",
        only="streams"),
    Key("sampler_type", str, None,
        "`cyclic` is endless, `single` is one epoch; unset is `single` with"
        " order `megatron`, else `cyclic`.",
        legal=("cyclic", "single")),
    Key("data_sharding", int, None,
        "Buckets of a source's rows that take turns, each permuted in itself;"
        " with `cyclic`.",
        minimum=1, only="cut"),
    Key("data_rearrange_map", ROW_MAP, None,
        "Which row of train stands at each place: a .npy or .json file, or a"
        " tuple.", only="cut"),
    Key("epochs", int, None, "Epochs of train; unset is endless.", minimum=1),
    Key("end_of_data", str, None,
        "The last batch, if not full; unset drops it in train, pads it else"
        " and in streams.",
        legal=("drop", "pad")),
    Key("drop_last", bool, None,
        "The reference's name: True is end_of_data `drop`, False is `pad`."),
    Key("consumed_samples", int, 0, "The row of train to begin at.",
        minimum=0),
    Key("replica_read", str, "each",
        "Of processes that need the same rows, as with cp and tp: `each` makes"
        " them all, or they `split` the work and the devices exchange rows.",
        legal=("each", "split")),
    Key("prefetch", int, 2,
        "Batches made and put on devices ahead, by a thread; 0 makes each when"
        " it is asked for, and the step waits for it.",
        minimum=0),
  ),
)
# fmt: on
