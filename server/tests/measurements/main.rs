//! The measurements, on both databases: the same cases must hold on SQLite and on PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a helper that fails, fails the test")]

mod bad_uploads;
mod base;
mod damage;
mod documents;
mod exchange;
mod http;
mod hulls;
mod opening;
mod records;
mod store;
mod tokens;
mod uploads;

/// Makes a test of each case for each database. Those that need PostgreSQL are ignored, so that cargo alone names them;
/// `cargo xtask test` runs them.
macro_rules! conformance {
    ($($module:ident: $($case:ident),+;)+) => {
        mod sqlite {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::$module::$case(crate::base::Base::sqlite()).await;
                })+
            })+
        }
        mod postgres {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                #[ignore = "needs PostgreSQL, see CONTRIBUTING.md"]
                async fn $case() {
                    crate::$module::$case(crate::base::Base::postgres()).await;
                })+
            })+
        }
    };
}

conformance! {
    hulls: one_is_kept_under_its_hash, what_is_none_is_not_kept, who_may_not_upload_a_record_may_not_keep_one;
    store:
        a_record_is_kept_once_and_given_back_to_the_byte,
        lists_are_newest_first_and_cut_into_pages,
        every_facet_filters,
        what_is_asked_for_is_never_sql,
        comparisons_are_those_of_the_points,
        what_contradicts_its_neighbours_is_quarantined_in_any_order,
        what_is_far_from_the_estimate_is_quarantined,
        several_cards_have_neighbours_of_their_own,
        many_at_once_lose_nothing,
        the_revision_changes_with_the_records_only,
        awkward_texts_come_back;
    tokens:
        a_token_is_good_until_it_is_revoked,
        nothing_else_is_a_token;
    opening:
        what_was_kept_is_there_after_opening_again,
        another_process_sees_it_within_a_second,
        a_newer_database_is_left_alone,
        what_another_version_summed_up_is_made_anew;
    uploads:
        an_upload_is_created_then_known,
        tokens_are_asked_for_once_there_is_one,
        other_machines_need_a_token,
        web_pages_and_proxies_are_not_programs_of_this_machine,
        too_many_are_told_when_to_come_back;
    exchange:
        lists_and_comparisons_over_http,
        pages_lead_from_one_to_the_next,
        unchanged_lists_cost_nothing,
        records_are_for_ever,
        bad_queries_say_what_to_do;
}
