//! Tokens: who may upload.
//!
//! A token is `plimsoll_ID_SECRET`. The id finds its row; the secret is 256 random bits, of which only the SHA-256 of
//! the whole token is kept, and that is compared in constant time: how long a refusal takes tells nothing about it.

use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use subtle::ConstantTimeEq as _;

use super::pools::{reading, within};
use super::{Store, StoreError, today};

const PREFIX: &str = "plimsoll_";
/// Hexadecimal digits of the id.
const ID: usize = 8;

/// Longest label, in characters.
pub const LABEL: usize = 100;

/// A token as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What tells it from the others, and what it is revoked by.
    pub id: String,
    /// Whose it is, in the words of whoever made it.
    pub label: String,
    /// The day it was made.
    pub created: String,
    /// The day it was revoked, if it was.
    pub revoked: Option<String>,
    /// The day it was last used, if it was.
    pub last_used: Option<String>,
}

impl Store {
    /// Makes a token and answers with its id and with the token itself, which can never be shown again.
    ///
    /// # Errors
    /// The database fails, or the system has no random numbers.
    pub async fn create_token(&self, label: &str) -> Result<(String, String), StoreError> {
        let mut random = [0; ID / 2 + 32];
        getrandom::fill(&mut random).map_err(|e| StoreError::Failed(format!("no random numbers: {e}")))?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (id, secret) = random.split_at(ID / 2);
        let id = hex(id);
        let token = format!("{PREFIX}{id}_{}", hex(secret));
        let sql = "INSERT INTO token (id, sha256, label, created) VALUES ($1, $2, $3, $4)";
        let mut tx = self.pools.write().await?;
        within!(&mut tx, c => {
            let made = sqlx::query(sql).bind(&id).bind(hash(&token)).bind(label).bind(today());
            made.execute(c).await.map(|_| ())
        })
        .map_err(StoreError::of)?;
        tx.commit().await?;
        Ok((id, token))
    }

    /// Every token that was ever made, the oldest first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        let sql = "SELECT id, label, created, revoked, last_used FROM token ORDER BY created, id";
        reading!(&self.pools, pool => {
            let rows = sqlx::query(sql).fetch_all(pool).await.map_err(StoreError::of)?;
            let tokens = rows.iter().map(|row| {
                Ok(Token {
                    id: row.try_get(0)?,
                    label: row.try_get(1)?,
                    created: row.try_get(2)?,
                    revoked: row.try_get(3)?,
                    last_used: row.try_get(4)?,
                })
            });
            tokens.collect::<Result<_, sqlx::Error>>().map_err(StoreError::of)
        })
    }

    /// Revokes a token at once; whether there was one that was not revoked yet.
    ///
    /// # Errors
    /// The database fails.
    pub async fn revoke_token(&self, id: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE token SET revoked = $1 WHERE id = $2 AND revoked IS NULL";
        let mut tx = self.pools.write().await?;
        let changed = within!(&mut tx, c => {
            sqlx::query(sql).bind(today()).bind(id).execute(c).await.map(|done| done.rows_affected())
        });
        let changed = changed.map_err(StoreError::of)?;
        tx.commit().await?;
        Ok(changed > 0)
    }

    /// Whether any token was ever made: from then on, uploads need one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn asks_for_tokens(&self) -> Result<bool, StoreError> {
        reading!(&self.pools, pool => {
            let row = sqlx::query("SELECT id FROM token LIMIT 1").fetch_optional(pool).await.map_err(StoreError::of)?;
            Ok(row.is_some())
        })
    }

    /// The id of a token that may upload; `None` for one that never could, or no longer.
    ///
    /// # Errors
    /// The database fails.
    pub async fn check_token(&self, token: &str) -> Result<Option<String>, StoreError> {
        let id = token.strip_prefix(PREFIX).and_then(|rest| rest.split('_').next()).filter(|id| id.len() == ID);
        let found: Option<(String, Option<String>)> = reading!(&self.pools, pool => {
            let sql = "SELECT sha256, revoked FROM token WHERE id = $1";
            let row = sqlx::query(sql).bind(id.unwrap_or_default()).fetch_optional(pool).await.map_err(StoreError::of)?;
            row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose().map_err(StoreError::of)?
        });
        // An id that is not there is compared all the same, with what no token hashes to.
        let (stored, revoked) = found.unwrap_or_else(|| ("0".repeat(64), None));
        let same: bool = hash(token).as_bytes().ct_eq(stored.as_bytes()).into();
        Ok(if same && revoked.is_none() { id.map(str::to_owned) } else { None })
    }
}

fn hash(token: &str) -> String {
    Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
