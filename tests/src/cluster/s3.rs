//! A server of S3 on a node: moto's, which checks signatures and what a user may do.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Background, Cluster, until};
use crate::job::Failure;

/// Where tests/install puts it.
const PROGRAMS: &str = "/var/cache/ckptd-tests/s3/moto/bin";
const PORT: &str = "5000";
const UP_LIMIT: Duration = Duration::from_secs(30);
/// What the server lets anybody do before it asks for signatures: what [`FURNISH`] does.
const FREE: &str = "4";

/// Makes a user who may do anything in S3, and a bucket; prints the user's keys.
const FURNISH: &str = "
import boto3
of = dict(endpoint_url='http://localhost:5000', region_name='us-east-1',
          aws_access_key_id='x', aws_secret_access_key='x')
iam = boto3.client('iam', **of)
iam.create_user(UserName='anna')
key = iam.create_access_key(UserName='anna')['AccessKey']
policy = '{\"Version\": \"2012-10-17\", \"Statement\": [{\"Effect\": \"Allow\", \"Action\": \"s3:*\", \"Resource\": \"*\"}]}'
iam.put_user_policy(UserName='anna', PolicyName='all', PolicyDocument=policy)
boto3.client('s3', **of).create_bucket(Bucket='kept')
print(key['AccessKeyId'], key['SecretAccessKey'])
";

/// Prints what is in the bucket, and uploads that are not whole.
const LOOK: &str = "
import boto3, sys
s3 = boto3.client('s3', endpoint_url='http://localhost:5000', region_name='us-east-1',
                  aws_access_key_id=sys.argv[1], aws_secret_access_key=sys.argv[2])
for one in s3.list_objects_v2(Bucket='kept').get('Contents', []):
    print(one['Key'])
for one in s3.list_multipart_uploads(Bucket='kept').get('Uploads', []):
    print('unfinished', one['Key'])
";

/// A running server with one bucket, `kept`, and one user.
pub struct S3<'c> {
    cluster: &'c Cluster,
    server: Background,
    id: String,
    secret: String,
}

impl<'c> S3<'c> {
    /// Starts it on node0. `None`: it is not installed.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(cluster: &'c Cluster) -> Result<Option<S3<'c>>, Failure> {
        let server = Path::new(PROGRAMS).join("moto_server");
        if !server.exists() {
            println!("    skipped: no moto; tests/install installs it");
            return Ok(None);
        }
        let words = [&*server.display().to_string(), "-H", "0.0.0.0", "-p", PORT];
        let server = cluster.node(0).spawn(&words, &[("INITIAL_NO_AUTH_ACTION_COUNT", FREE)])?;
        let up = until("the server of S3 is up", UP_LIMIT, || {
            Ok(server.errors().contains("Running on").then_some(()))
        });
        up.map_err(|failure| server.explain(&failure))?;
        let mut s3 = S3 { cluster, server, id: String::new(), secret: String::new() };
        let keys = s3.python(FURNISH)?;
        let keys = keys.trim().split_once(' ');
        let (id, secret) = keys.ok_or_else(|| Failure("the server gives no keys".to_owned()))?;
        (s3.id, s3.secret) = (id.to_owned(), secret.to_owned());
        Ok(Some(s3))
    }

    /// Lets it answer nobody for a while, or go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self, pause: bool) -> Result<(), Failure> {
        self.server.signal(if pause { Signal::SIGSTOP } else { Signal::SIGCONT })
    }

    /// Runs a script on the server's node.
    fn python(&self, script: &str) -> Result<String, Failure> {
        let python = format!("{PROGRAMS}/python");
        let done = self.cluster.node(0).must_run(&[&python, "-c", script, &self.id, &self.secret]);
        done.map_err(|failure| self.server.explain(&failure))
    }

    /// Lines of a shell by which a user has these keys.
    #[must_use]
    pub fn exports(&self) -> String {
        self.exports_with(&self.secret)
    }

    /// The same, with another secret.
    #[must_use]
    pub fn exports_with(&self, secret: &str) -> String {
        format!(
            "export AWS_ENDPOINT_URL=http://node0:{PORT} AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={secret}",
            self.id
        )
    }

    /// What nobody may be told.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// What is in the bucket; `unfinished KEY` for an upload that is not whole.
    ///
    /// # Errors
    /// When the server does not tell.
    pub fn content(&self) -> Result<Vec<String>, Failure> {
        Ok(self.python(LOOK)?.lines().map(str::to_owned).collect())
    }
}
